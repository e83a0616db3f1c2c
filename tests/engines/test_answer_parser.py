"""The parser of a manager's answers: however the bytes are cut, the answers are the same, and nothing else is accepted."""

import random

import pytest

from onejob.engines.remote.connection import AnswerParser, ManagerAnswer, ProtocolError
from onejob.manager.ledger import WireResponse
from onejob.manager.server import CHUNKED_HEAD, LAST_CHUNK, encode_response, write_chunk

BODY = bytes(range(256)) * 3
STREAM = (
    encode_response(WireResponse(200, b"R" + BODY), is_last=False)
    + CHUNKED_HEAD
    + write_chunk(b".")
    + write_chunk(b"R" + BODY)
    + LAST_CHUNK
    + encode_response(WireResponse(503, b""), is_last=True)
)


def parse(pieces: list[bytes]) -> list[ManagerAnswer]:
    parser = AnswerParser(10_000)
    return [answer for piece in pieces for answer in parser.feed(piece)]


def test_answers_are_the_same_however_the_bytes_are_cut() -> None:
    whole = parse([STREAM])
    assert whole == [
        ManagerAnswer(200, b"R" + BODY, is_last=False),
        ManagerAnswer(200, b".R" + BODY, is_last=False),
        ManagerAnswer(503, b"", is_last=True),
    ]
    assert parse([STREAM[at : at + 1] for at in range(len(STREAM))]) == whole
    rng = random.Random(15)
    for _ in range(100):
        cuts = sorted(rng.randrange(len(STREAM)) for _ in range(8))
        assert parse([STREAM[a:b] for a, b in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]) == whole


def test_chunks_of_a_stream_are_handed_over_as_they_come() -> None:
    chunks: list[bytes] = []
    parser = AnswerParser(100)
    parser.on_chunk = chunks.append
    assert not parser.feed(CHUNKED_HEAD + b"".join(write_chunk(b"x" * 90) for _ in range(10)))
    assert chunks == [b"x" * 90] * 10


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 -\r\nx: " + b"x" * 17_000,
        b"HTTP/1.1 200 -\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 -\r\ncontent-length: 1\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/1.1 200 -\r\ncontent-length: +1\r\n\r\n",
        b"HTTP/1.1 200 -\r\n\r\n",
        b"HTTP/1.1 200 -\r\ntransfer-encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n",
        b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * 20,
        b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n1\r\nxyz",
        b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n" + write_chunk(b"x" * 9000) * 2,
        b"HTTP/1.1 200 -\r\ncontent-length: 10001\r\n\r\n",
        b"HTTP/1.1 101 -\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ],
)
def test_what_can_be_read_in_two_ways_or_is_too_large_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        AnswerParser(10_000).feed(data)


@pytest.mark.parametrize(
    "start", [b"HTTP/1.0 200 OK\r\ncontent-length: 0", b"HTTP/1.1 abc", b"HTTP/2 200 OK", b"220 smtp"]
)
def test_another_kind_of_server_is_recognised(start: bytes) -> None:
    with pytest.raises(ProtocolError):
        AnswerParser(10_000).feed(start + b"\r\n\r\n")
