"""silero-vad's model, as onnx-asr runs it: silero's own package needs torch to hold arrays."""

import json
import sys

import numpy as np
import onnx_asr

sound = np.load(sys.argv[2])
vad = onnx_asr.load_vad("silero", sys.argv[1])
lengths = np.array([len(sound), len(sound) // 2])
batch = np.stack([sound, np.where(np.arange(len(sound)) < lengths[1], sound, 0)])
alone = list(next(vad.segment_batch(sound[None], lengths[:1], 16_000)))
together = [list(found) for found in vad.segment_batch(batch, lengths, 16_000)]
print(json.dumps([alone, together]))
