set -e
pip install jmp pyvista numpy matplotlib Rtree trimesh termcolor orbax
test -d /tmp/XLB || git clone https://github.com/Autodesk/XLB /tmp/XLB
# git -C /tmp/XLB checkout COMMIT     what is measured with should stay the same; so should what pip installs
