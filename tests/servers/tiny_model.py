"""Make a language model of half a megabyte with random weights: nothing is downloaded, and a real model server runs it.

The weights are random but for one direction that every hidden state shares: it makes some words likely and others not. So
the model writes words, or opens tool calls, as we please. What it says makes no sense; how the server sends it is real.
"""

from __future__ import annotations

import array
import io
import random
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import attrs

WIDTH, HEADS, LAYERS, FEED_FORWARD, CONTEXT = 64, 4, 2, 128, 65536
WORDS = (
    *("the", "a", "model", "river", "stone", "answers", "quietly", "and", "then", "city", "weather", "tool", "turn"),
    *("state", "stream", "token", "green", "seven", "paper", "light", "north", "small", "engine", "writes", "reads"),
    *("before", "after", "every", "other"),
)
TEMPLATE = (
    '{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }}\nCall with <tool_call>{"name": ..., "arguments": ...}'
    "</tool_call><|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content %}{{ m.content }}"
    '{% endif %}{% if m.tool_calls %}{% for t in m.tool_calls %}<tool_call>{"name": "{{ t.function.name }}", "arguments": '
    "{{ t.function.arguments | tojson }}}</tool_call>{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
"""Kinds of tokens, as a GGUF file numbers them."""


@attrs.frozen
class Token:
    """An entry of the vocabulary; ``bias`` says how much the model likes it."""

    text: str
    kind: int
    score: float = 0.0
    bias: float = -2.0


def _vocabulary(call_bias: float, end_bias: float) -> list[Token]:
    tokens = [Token("<unk>", UNKNOWN), Token("<s>", CONTROL), Token("</s>", CONTROL)]
    tokens += [Token(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    tokens += [Token("<|im_start|>", CONTROL), Token("<|im_end|>", CONTROL, bias=end_bias)]
    tokens += [Token(text, USER_DEFINED, bias=call_bias) for text in ("<tool_call>", "</tool_call>")]
    tokens += [Token("▁" if code == 32 else chr(code), NORMAL, -500.0 - code, -0.4) for code in range(32, 127)]
    tokens += [Token("▁" + word, NORMAL, -10.0 - place, 0.6) for place, word in enumerate(WORDS)]
    return tokens


class _Gguf:
    """Writer of a GGUF file (version 3): typed key-value pairs, then tensors of 32-bit floats."""

    _ALIGNMENT = 32
    _FORMATS: ClassVar[Mapping[str, tuple[int, str]]] = {
        "u32": (4, "<I"),
        "i32": (5, "<i"),
        "f32": (6, "<f"),
        "bool": (7, "<?"),
    }
    _STRING, _ARRAY = 8, 9

    def __init__(self) -> None:
        self._pairs: list[bytes] = []
        self._tensors: list[tuple[str, tuple[int, ...], bytes]] = []

    @staticmethod
    def _text(value: str) -> bytes:
        raw = value.encode()
        return struct.pack("<Q", len(raw)) + raw

    def text(self, key: str, value: str) -> None:
        self._pairs.append(self._text(key) + struct.pack("<I", self._STRING) + self._text(value))

    def texts(self, key: str, values: Sequence[str]) -> None:
        head = struct.pack("<IIQ", self._ARRAY, self._STRING, len(values))
        self._pairs.append(self._text(key) + head + b"".join(map(self._text, values)))

    def number(self, key: str, kind: Literal["u32", "i32", "f32", "bool"], value: float) -> None:
        code, layout = self._FORMATS[kind]
        self._pairs.append(self._text(key) + struct.pack("<I", code) + struct.pack(layout, value))

    def numbers(self, key: str, kind: Literal["u32", "i32", "f32", "bool"], values: Sequence[float]) -> None:
        code, layout = self._FORMATS[kind]
        head = struct.pack("<IIQ", self._ARRAY, code, len(values))
        self._pairs.append(self._text(key) + head + b"".join(struct.pack(layout, value) for value in values))

    def tensor(self, name: str, rows: Sequence[Sequence[float]]) -> None:
        """Add a matrix, or a vector as its only row. Dimensions are written the fastest one first."""
        shape = (len(rows[0]),) if len(rows) == 1 else (len(rows[0]), len(rows))
        data = array.array("f", (value for row in rows for value in row))
        self._tensors.append((name, shape, data.tobytes()))

    def write(self, path: Path) -> None:
        out, offset = io.BytesIO(), 0
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(self._tensors), len(self._pairs)) + b"".join(self._pairs))
        for name, shape, data in self._tensors:
            out.write(self._text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
            out.write(struct.pack("<IQ", 0, offset))
            offset += len(self._padded(data))
        out.write(bytes(-out.tell() % self._ALIGNMENT))
        for _, _, data in self._tensors:
            out.write(self._padded(data))
        path.write_bytes(out.getvalue())

    def _padded(self, data: bytes) -> bytes:
        return data + bytes(-len(data) % self._ALIGNMENT)


def _describe(gguf: _Gguf, tokens: Sequence[Token]) -> None:
    """Write what the server must know beside the weights."""
    gguf.text("general.architecture", "llama")
    gguf.text("general.name", "turnstate-random")
    gguf.number("general.file_type", "u32", 0)
    for key, value in (
        ("context_length", CONTEXT),
        ("embedding_length", WIDTH),
        ("block_count", LAYERS),
        ("feed_forward_length", FEED_FORWARD),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", HEADS),
        ("rope.dimension_count", WIDTH // HEADS),
        ("vocab_size", len(tokens)),
    ):
        gguf.number(f"llama.{key}", "u32", value)
    gguf.number("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5)
    gguf.text("tokenizer.ggml.model", "llama")
    gguf.texts("tokenizer.ggml.tokens", [token.text for token in tokens])
    gguf.numbers("tokenizer.ggml.scores", "f32", [token.score for token in tokens])
    gguf.numbers("tokenizer.ggml.token_type", "i32", [token.kind for token in tokens])
    gguf.number("tokenizer.ggml.bos_token_id", "u32", 1)
    gguf.number("tokenizer.ggml.unknown_token_id", "u32", 0)
    gguf.number("tokenizer.ggml.eos_token_id", "u32", [token.text for token in tokens].index("<|im_end|>"))
    gguf.number("tokenizer.ggml.add_bos_token", "bool", True)
    gguf.number("tokenizer.ggml.add_space_prefix", "bool", False)
    gguf.text("tokenizer.chat_template", TEMPLATE)


def make_model(path: Path, *, call_bias: float = -2.0, end_bias: float = 0.55) -> Path:
    """Write a model to ``path``; the more ``call_bias``, the more it calls tools; ``end_bias``, the sooner it stops."""
    dice = random.Random(7)
    tokens = _vocabulary(call_bias, end_bias)

    def noise(rows: int, columns: int, spread: float = 0.05) -> list[list[float]]:
        return [[dice.gauss(0.0, spread) for _ in range(columns)] for _ in range(rows)]

    embedding, head = noise(len(tokens), WIDTH, 0.5), noise(len(tokens), WIDTH, 0.25)
    for place, token in enumerate(tokens):
        embedding[place][0] = 4.0
        head[place][0] = token.bias
    ones = [[1.0] * WIDTH]
    gguf = _Gguf()
    _describe(gguf, tokens)
    gguf.tensor("token_embd.weight", embedding)
    gguf.tensor("output.weight", head)
    gguf.tensor("output_norm.weight", ones)
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            gguf.tensor(f"blk.{layer}.{name}.weight", noise(WIDTH, WIDTH))
        gguf.tensor(f"blk.{layer}.ffn_gate.weight", noise(FEED_FORWARD, WIDTH))
        gguf.tensor(f"blk.{layer}.ffn_up.weight", noise(FEED_FORWARD, WIDTH))
        gguf.tensor(f"blk.{layer}.ffn_down.weight", noise(WIDTH, FEED_FORWARD))
        gguf.tensor(f"blk.{layer}.attn_norm.weight", ones)
        gguf.tensor(f"blk.{layer}.ffn_norm.weight", ones)
    gguf.write(path)
    return path
