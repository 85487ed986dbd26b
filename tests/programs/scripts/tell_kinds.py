"""magika, as its documentation begins."""

import json
import sys
from pathlib import Path

from magika import Magika

magika = Magika()
texts = [
    b"#!/usr/bin/env python3\nimport os\n\nclass A:\n    def f(self, x):\n        return [x]\n",
    b"<html><head><title>x</title></head><body><p>hello</p></body></html>",
    b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< /Type /Catalog >>\nendobj\n",
    b'{"a": [1, 2, {"b": null}]}',
]
found = [magika.identify_bytes(text) for text in texts]
found.append(magika.identify_path(Path(sys.argv[1])))
found += magika.identify_paths([Path(p) for p in sys.argv[1:]])
print(json.dumps([[result.output.label, result.score] for result in found]))
