"""`karat ops`: the operators of a framework, and whether their derivatives are right."""
