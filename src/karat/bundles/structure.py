"""Structure: nested Python values as JSON that names tensors, and back.

`None`, booleans, text and integers up to 2^53 stand as themselves. Everything else is an object whose first
key says what it is:

    {"tensor": NAME}  {"scalar": NAME}                     an array; a single numpy value
    {"int": HEX}  {"float": TEXT}  {"complex": [TEXT, TEXT]}  {"text": BASE64}  {"bytes": BASE64} …
    {"tuple": […]}  {"list": […]}  {"set": […]}  {"slice": [start, stop, step]}  {"range": …}
    {"dict": [[key, value], …]}  {"ordereddict": …}  {"defaultdict": …, "factory": "list"}
    {"dataclass": "module:Class", "fields": [[name, value], …]}  {"namedtuple": …}  {"structseq": …}
    {"enum": "module:Class", "member": NAME, "value": …}
    {"torch.dtype": "float32"}  {"torch.device": "cuda:0"}  {"torch.Size": [2, 3]}  {"numpy.dtype": …}

What has no form is `CannotStore`, with its place in the value. References to one object come back as
copies; a value that holds itself has no form.
"""

from __future__ import annotations

from karat.bundles.flat import Flat, Record, Restored, Unset
from karat.bundles.flattening import flatten
from karat.bundles.restoring import restore, tensor_names

__all__ = ["Flat", "Record", "Restored", "Unset", "flatten", "restore", "tensor_names"]
