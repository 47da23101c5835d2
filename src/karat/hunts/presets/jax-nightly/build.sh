# In the folder that has both checkouts. A wheel of the point before must not be installed again.
rm -f jax/dist/jax*.whl
build-jax.sh --src-path-jax "$PWD/jax" --src-path-xla "$PWD/xla"
