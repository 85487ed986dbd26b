"""ddddocr's recogniser and detector, as its documentation begins."""

import json
import sys

import ddddocr

reader = ddddocr.DdddOcr(show_ad=False)
finder = ddddocr.DdddOcr(det=True, ocr=False, show_ad=False)
with open(sys.argv[1], "rb") as file:
    word = reader.classification(file.read())
with open(sys.argv[2], "rb") as file:
    boxes = finder.detection(file.read())
print(json.dumps([word, boxes]))
