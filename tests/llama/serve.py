"""Serves a model with llama.cpp's own server, and prints its address once it listens.

    python serve.py model.gguf TOKENS_OF_CONTEXT PORT [KEY]
"""

import sys
import threading

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.model_alias = {"noise"}
params.port = int(sys.argv[3])
params.n_ctx = int(sys.argv[2])
params.n_parallel = 1
params.n_gpu_layers = 0
params.ctx_shift = False
params.use_jinja = True
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
if len(sys.argv) > 4:
    params.api_keys = [sys.argv[4]]
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
