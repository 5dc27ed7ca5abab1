"""Writes a language model with random weights, for a real inference server to serve.

    python model.py tiny.gguf WIDTH LAYERS

It has the layout of Llama and the bytes as its vocabulary. What it says is noise, but the same noise each time at
temperature zero; that it says it token by token, over the server's own wire, is what the tests need. A wide one of many
layers is slow enough to be killed while it speaks.
"""

import sys

import gguf
import numpy as np

HEADS, CONTEXT = 4, 4096
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def main(path, width, layers):
    inner = 2 * width
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(width // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)

    letters = [f"<0x{byte:02X}>" for byte in range(256)]
    # Printable characters are tokens of their own too: so every text has a reading, and most tokens are readable.
    signs = ["\u2581"] + [chr(code) for code in range(33, 127)]
    tokens = SPECIAL + letters + signs
    kinds = (
        [gguf.TokenType.UNKNOWN]
        + [gguf.TokenType.CONTROL] * (len(SPECIAL) - 1)
        + [gguf.TokenType.BYTE] * len(letters)
        + [gguf.TokenType.NORMAL] * len(signs)
    )
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(4)
    writer.add_chat_template(TEMPLATE)

    random = np.random.default_rng(7)

    def weights(*shape):
        return (random.standard_normal(shape) * 0.2).astype(np.float32)

    head = weights(len(tokens), width)
    # Bytes and control tokens are made improbable: what it says is text, and it ends only at its limit of tokens.
    bias = np.zeros(len(tokens), dtype=np.float32)
    bias[: len(SPECIAL) + len(letters)] = -1.0
    embedding = weights(len(tokens), width)
    embedding[:, 0] = 4.0
    head[:, 0] = bias * 8.0
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output_norm.weight", np.ones(width, dtype=np.float32))
    writer.add_tensor("output.weight", head)
    for layer in range(layers):
        at = f"blk.{layer}."
        writer.add_tensor(at + "attn_norm.weight", np.ones(width, dtype=np.float32))
        writer.add_tensor(at + "ffn_norm.weight", np.ones(width, dtype=np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(at + name + ".weight", weights(width, width) * 0.1)
        writer.add_tensor(at + "ffn_gate.weight", weights(inner, width) * 0.1)
        writer.add_tensor(at + "ffn_up.weight", weights(inner, width) * 0.1)
        writer.add_tensor(at + "ffn_down.weight", weights(width, inner) * 0.1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
