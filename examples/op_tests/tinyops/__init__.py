"""An operator library of a page: forwards in `ops`, backwards in `backwards`."""
