"""The binding of NCCL, against a library in C that writes down its arguments as C sees them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tstatic.comm.transport import nccl
from tstatic.errors import MissingPackageError

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
]

SOURCE = """
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct { char internal[128]; } Id;
typedef void *Comm;
static char text[4096];
static int result;

static int say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + strlen(text), sizeof text - strlen(text), format, arguments);
    va_end(arguments);
    return result;
}

const char *said(void) { return text; }
void forget(void) { text[0] = 0; }
void fail(int code) { result = code; }

int ncclGetVersion(int *version) { *version = 22809; return result; }
int ncclGetUniqueId(Id *id) { memset(id, 0, 128); id->internal[2] = 7; id->internal[127] = 9; return say("id;"); }
int ncclCommInitRank(Comm *comm, int size, Id id, int rank) {
    *comm = (Comm)0x123456789abc;
    return say("init %d %d %d %d;", size, id.internal[2], id.internal[127], rank);
}
int ncclCommInitAll(Comm *comms, int count, const int *devices) {
    for (int i = 0; i < count; i++) { comms[i] = (Comm)(0x10000000000 + devices[i]); }
    return say("all %d;", count);
}
int ncclCommDestroy(Comm comm) { return say("destroy %p;", comm); }
int ncclCommAbort(Comm comm) { say("abort %p;", comm); return comm == (Comm)6 ? 6 : 0; }
int ncclCommGetAsyncError(Comm comm, int *code) { *code = comm == (Comm)6 ? 6 : comm == (Comm)7 ? 7 : 0; return 0; }
const char *ncclGetErrorString(int code) { return code == 6 ? "remote process exited" : "invalid usage"; }
const char *ncclGetLastError(Comm comm) { return "why\\n"; }
int ncclGroupStart(void) { return say("start;"); }
int ncclGroupEnd(void) { return say("end;"); }
int ncclAllReduce(const void *a, void *b, size_t n, int type, int op, Comm comm, void *stream) {
    return say("all_reduce %p %p %zu %d %d %p %p;", a, b, n, type, op, comm, stream);
}
int ncclReduce(const void *a, void *b, size_t n, int type, int op, int root, Comm comm, void *stream) {
    return say("reduce %p %p %zu %d %d %d %p %p;", a, b, n, type, op, root, comm, stream);
}
int ncclReduceScatter(const void *a, void *b, size_t n, int type, int op, Comm comm, void *stream) {
    return say("reduce_scatter %p %p %zu %d %d %p %p;", a, b, n, type, op, comm, stream);
}
int ncclBroadcast(const void *a, void *b, size_t n, int type, int root, Comm comm, void *stream) {
    return say("broadcast %p %p %zu %d %d %p %p;", a, b, n, type, root, comm, stream);
}
int ncclAllGather(const void *a, void *b, size_t n, int type, Comm comm, void *stream) {
    return say("all_gather %p %p %zu %d %p %p;", a, b, n, type, comm, stream);
}
int ncclSend(const void *a, size_t n, int type, int peer, Comm comm, void *stream) {
    return say("send %p %zu %d %d %p %p;", a, n, type, peer, comm, stream);
}
int ncclRecv(void *b, size_t n, int type, int peer, Comm comm, void *stream) {
    return say("receive %p %zu %d %d %p %p;", b, n, type, peer, comm, stream);
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nccl")
    (folder / "nccl.c").write_text(SOURCE)
    path = folder / "libnccl.so.2"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, folder / "nccl.c"], check=True)
    return path


class Told(nccl.Nccl):
    """The binding of the library in C, and what that was told."""

    def said(self) -> list[str]:
        self._library.said.restype = ctypes.c_char_p
        found: str = self._library.said().decode()
        self._library.forget()
        return found.split(";")[:-1]

    def fail(self, code: int) -> None:
        self._library.fail(code)


@pytest.fixture
def library(built: Path) -> Iterator[Told]:
    made = Told(str(built))
    made.said()
    yield made
    made.fail(0)


COMM, STREAM = 0x7F00_0000_1000, 0x7F00_0000_2000
A, B, COUNT = 0x7F12_3456_7890, 0x7F12_3456_0000, (1 << 32) + 1


def test_arguments_arrive_as_c_expects_them(library: Told) -> None:
    library.all_reduce(A, B, COUNT, nccl.TYPES["bfloat16"], COMM, STREAM)
    library.reduce(A, B, COUNT, nccl.TYPES["float32"], 3, COMM, STREAM)
    library.reduce_scatter(A, B, COUNT, nccl.TYPES["int64"], COMM, STREAM)
    library.broadcast(A, B, COUNT, nccl.BYTES, 2, COMM, STREAM)
    library.all_gather(A, B, COUNT, nccl.BYTES, COMM, STREAM)
    library.send(A, COUNT, nccl.BYTES, 5, COMM, STREAM)
    library.receive(B, COUNT, nccl.BYTES, 4, COMM, STREAM)
    library.destroy(COMM)
    ends = f"{COMM:#x} {STREAM:#x}"
    assert library.said() == [
        f"all_reduce {A:#x} {B:#x} {COUNT} 9 0 {ends}",
        f"reduce {A:#x} {B:#x} {COUNT} 7 0 3 {ends}",
        f"reduce_scatter {A:#x} {B:#x} {COUNT} 4 0 {ends}",
        f"broadcast {A:#x} {B:#x} {COUNT} 1 2 {ends}",
        f"all_gather {A:#x} {B:#x} {COUNT} 1 {ends}",
        f"send {A:#x} {COUNT} 1 5 {ends}",
        f"receive {B:#x} {COUNT} 1 4 {ends}",
        f"destroy {COMM:#x}",
    ]


def test_the_unique_id_is_passed_by_value_with_its_zeros(library: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[int] = []

    class Device:
        def __init__(self, index: int) -> None:
            entered.append(index)

        def __enter__(self) -> None: ...
        def __exit__(self, *raised: object) -> None: ...

    monkeypatch.setattr(torch.cuda, "device", Device)
    named = library.unique_id()
    assert len(named) == nccl.ID_BYTES
    assert (named[2], named[127], sum(named)) == (7, 9, 16)
    assert library.init_rank(4, named, 3, 1) == 0x1234_5678_9ABC
    assert entered == [1]
    assert library.said() == ["id", "init 4 7 9 3"]


def test_communicators_of_several_devices(library: Told) -> None:
    assert library.init_all([0, 2]) == [1 << 40, (1 << 40) + 2]


def test_a_group_ends_also_on_an_error(library: Told) -> None:
    with library.group():
        library.send(A, 1, 1, 0, COMM, STREAM)
    assert [one.split()[0] for one in library.said()] == ["start", "send", "end"]
    with pytest.raises(ZeroDivisionError), library.group():
        raise ZeroDivisionError
    assert library.said() == ["start", "end"]
    with library.group():  # the lock is free again
        pass


def test_an_abort_takes_all_communicators_though_a_group_hangs(library: Told) -> None:
    with library.group():
        library.abort([1, 2])
    assert library.said() == ["start", "start", "abort 0x1", "abort 0x2", "end", "end"]


def test_errors_have_the_words_of_nccl(library: Told) -> None:
    library.fail(5)
    with pytest.raises(nccl.NcclError, match="ncclAllReduce failed: invalid usage") as caught:
        library.all_reduce(A, B, 1, 7, COMM, STREAM)
    assert (caught.value.call, caught.value.code) == ("ncclAllReduce", 5)
    assert caught.value.received == "error 5: why"
    library.fail(0)
    with pytest.raises(nccl.NcclError, match="ncclCommAbort failed: remote process exited"):
        library.abort([6, 1])
    assert library.said()[-4:] == ["start", "abort 0x6", "abort 0x1", "end"]


def test_errors_behind_the_calls(library: Told) -> None:
    assert library.async_error(6) == "remote process exited; why"
    assert library.async_error(7) == ""  # in progress
    assert library.async_error(1) == ""


def test_the_version(library: Told) -> None:
    assert library.version == "2.28.9"


def test_the_loaded_copy_is_taken_first(library: Told, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # This process has loaded it; beside torch's own, if torch has one.
    assert str(built) in nccl._candidates(Path("/nowhere/torch"))[:-1]
    assert nccl.load().where == nccl._candidates(Path(torch.__file__).parent)[0]
    monkeypatch.setattr(nccl, "_loaded", list)
    assert str(built) not in nccl._candidates(Path("/nowhere/torch"))
    folder = built.parent / "nvidia" / "nccl" / "lib"
    folder.mkdir(parents=True)
    shutil.copy(built, folder)
    assert nccl._candidates(built.parent / "torch")[0] == str(folder / built.name)


def test_without_nccl_the_error_says_where_it_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "_candidates", lambda folder: ["/nowhere/libnccl.so.2"])
    with pytest.raises(MissingPackageError, match="NCCL was not found") as caught:
        nccl.load()
    assert "/nowhere/libnccl.so.2" in str(caught.value.received)
    assert "FLAGS_collectives" in str(caught.value.fix)
