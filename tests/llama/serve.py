"""Serves a model with llama.cpp's own server, and prints its address once it listens.

    python serve.py model.gguf TOKENS_OF_CONTEXT [KEY]
"""

import socket
import sys
import threading

import xllamacpp


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.model_alias = {"noise"}
params.port = free_port()
params.n_ctx = int(sys.argv[2])
params.n_parallel = 1
params.n_gpu_layers = 0
params.ctx_shift = False
params.use_jinja = True
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
if len(sys.argv) > 3:
    params.api_keys = [sys.argv[3]]
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
