"""rapidocr, as its documentation begins."""

import json
import sys

from rapidocr import RapidOCR

engine = RapidOCR()
result = engine(sys.argv[1])
print(json.dumps([list(result.txts), [float(s) for s in result.scores]]))
