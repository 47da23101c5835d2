cd /tmp/XLB || exit 125
export PYTHONPATH=.
python3 examples/performance/MLUPS3d.py 256 200
