"""The compiled codec: from the declarations of a message (`fields`) to functions that encode and decode one of its versions."""

from moldau.protocol.codec.compiler import decode, decoder, element_writer, encode, encode_into, encoder, step_decoder, step_writer
from moldau.protocol.codec.primitives import UnencodableError

__all__ = ["UnencodableError", "decode", "decoder", "element_writer", "encode", "encode_into", "encoder", "step_decoder", "step_writer"]
