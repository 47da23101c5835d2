"""The store: cases by content, snapshots by name, in a local folder or a bucket; and packing cases as zips."""
