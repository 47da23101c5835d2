for name in xla jax; do
    for folder in "$name" "/opt/$name-source" "/opt/$name"; do
        test -e "$folder/.git" || continue
        echo "commit.$name=$(git -C "$folder" rev-parse HEAD)"
        break
    done
done
