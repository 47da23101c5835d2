"""Reviews: a person decides what becomes of each changed golden; git is where the decision stands."""
