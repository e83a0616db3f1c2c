"""The parser of the wire: however the bytes are cut, the messages are the same, and nothing else is accepted."""

import random

import pytest

from onejob.engines.remote.http1 import (
    LAST_CHUNK,
    Message,
    MessageParser,
    ProtocolError,
    begin_chunked_response,
    parse_request_path,
    parse_status,
    write_chunk,
    write_request,
    write_response,
)

BODY = bytes(range(256)) * 3
STREAM = (
    write_request("/execute", "m1:8002", ((b"onejob-wire", b"1"),), BODY)
    + write_response(200, b"R" + BODY)
    + begin_chunked_response(200)
    + write_chunk(b".")
    + write_chunk(b"R" + BODY)
    + LAST_CHUNK
    + write_response(503, b"")
)


def parse(pieces: list[bytes]) -> list[Message]:
    parser = MessageParser(10_000)
    messages = [message for piece in pieces for message in parser.feed(piece)]
    assert parser.is_between_messages
    return messages


def test_messages_are_the_same_however_the_bytes_are_cut() -> None:
    whole = parse([STREAM])
    assert [message.body for message in whole] == [BODY, b"R" + BODY, b".R" + BODY, b""]
    assert parse_request_path(whole[0].start) == "/execute"
    assert [parse_status(message.start) for message in whole[1:]] == [200, 200, 503]
    assert parse([STREAM[at : at + 1] for at in range(len(STREAM))]) == whole
    rng = random.Random(15)
    for _ in range(100):
        cuts = sorted(rng.randrange(len(STREAM)) for _ in range(8))
        assert parse([STREAM[a:b] for a, b in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]) == whole


def test_chunks_of_a_stream_are_handed_over_as_they_come() -> None:
    chunks: list[bytes] = []
    parser = MessageParser(100)
    parser.on_chunk = chunks.append
    assert not parser.feed(begin_chunked_response(200) + b"".join(write_chunk(b"x" * 90) for _ in range(10)))
    assert chunks == [b"x" * 90] * 10


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 17_000,
        b"POST / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\nContent-Length: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: +1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 10001\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n",
        b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * 20,
        b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n1\r\nxyz",
        b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n" + write_chunk(b"x" * 9000) * 2,
    ],
)
def test_what_can_be_read_in_two_ways_or_is_too_large_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        MessageParser(10_000).feed(data)


@pytest.mark.parametrize("start", [b"HTTP/1.0 200 OK", b"HTTP/1.1 abc", b"", b"220 smtp"])
def test_another_kind_of_server_is_recognised(start: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_status(start)
