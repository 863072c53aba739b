"""TensorBoard's file: what it holds, and that a disk without room ends it and not the run."""

import errno

from tensorboardX.proto.event_pb2 import Event, SessionLog

from pods_jax.training.board import Board


def events(folder):
    """The events of a folder's one file. A record: 8 bytes of length, 4 of checksum, the event, 4 of checksum."""
    (file,) = folder.iterdir()
    data, found = file.read_bytes(), []
    while data:
        size = int.from_bytes(data[:8], "little")
        found.append(Event.FromString(data[12 : 12 + size]))
        data = data[16 + size :]
    return found


def test_scalars_are_in_the_file_and_later_steps_of_an_earlier_life_are_hidden(tmp_path):
    notes = []
    board = Board(tmp_path / "tensorboard", 4, notes.append)
    board.add({"reward": 0.5, "loss": float("nan")}, 4)
    board.close()
    _, start, *scalars = events(tmp_path / "tensorboard")
    assert (start.step, start.session_log.status) == (4, SessionLog.START)
    assert [(e.step, e.summary.value[0].tag) for e in scalars] == [(4, "reward"), (4, "loss")]
    assert scalars[0].summary.value[0].simple_value == 0.5
    assert not notes


def test_a_text_keeps_its_lines(tmp_path):
    board = Board(tmp_path / "tensorboard", 1, print)
    board.add_text("samples", "a <b>\n\nc", 3)
    board.close()
    *_, event = events(tmp_path / "tensorboard")
    (value,) = event.summary.value
    assert (event.step, value.tag, value.metadata.plugin_data.plugin_name) == (3, "samples/text_summary", "text")
    assert value.tensor.string_val == [b"    a <b>\n    \n    c"]  # a block of code in Markdown


def test_a_full_disk_is_one_note(tmp_path):
    notes = []
    board = Board(tmp_path / "tensorboard", 1, notes.append)

    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    board._writer.flush = full
    for step in (1, 2, 3):
        board.add({"reward": 0.5}, step)
    board.close()
    assert notes == [f"note     no more TensorBoard: {tmp_path}/tensorboard cannot be written: No space left on device"]


def test_a_folder_that_cannot_be_made_is_one_note(tmp_path):
    (tmp_path / "tensorboard").write_text("")
    notes = []
    board = Board(tmp_path / "tensorboard", 1, notes.append)
    board.add({"reward": 0.5}, 1)
    board.close()
    assert len(notes) == 1
