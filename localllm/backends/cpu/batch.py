"""A batch as the kernels read it: checked first, for they check nothing."""

import numpy as np

from localllm.backends.check import check
from localllm.backends.cpu.memory import aligned
from localllm.batch import Batch, Model
from localllm.kernels import fields
from localllm.kernels.fields import CHUNK, SPAN, TASK_BYTES
from localllm.wishes import WISH_FIELDS
from quant.rows import PANEL

TASK_FIELDS = TASK_BYTES // 8


class BatchMemory:
    """The arrays that a batch is written into, and the fields that point at them."""

    def __init__(self, rows: int, sequences: int, pages: int, parts: int, crowd: float):
        self.parts, self.crowd = parts, crowd
        self.fields = aligned(8 * fields.BATCH_FIELDS).view(np.int64)
        self.ids, self.positions = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        self.tables = np.zeros((sequences, pages), np.int32)
        self.row_tables = np.zeros(rows, np.int64)
        self.tasks = np.zeros((rows // 2 + sequences + parts, TASK_FIELDS), np.int64)
        self.first_tasks = np.zeros(rows, np.int64)
        self.wanted = np.zeros(rows, np.int64)
        self.wanted_index = np.zeros(rows, np.int64)
        self.wishes = np.zeros((rows, WISH_FIELDS), np.float32)
        self.all_drawn = np.zeros(rows, np.int64)
        self.passes, self.drawn = 1, self.all_drawn.reshape(1, -1)
        arrays: dict[int, np.ndarray] = {
            fields.POSITIONS: self.positions, fields.TABLES: self.row_tables,
            fields.TASK_LIST: self.tasks, fields.FIRST_TASKS: self.first_tasks,
            fields.WANTED_ROWS: self.wanted, fields.WANTED_INDEX: self.wanted_index,
            fields.WISHES: self.wishes, fields.IDS: self.ids, fields.DRAWN: self.all_drawn,
        }  # fmt: skip
        for field, array in arrays.items():
            self.fields[field] = array.ctypes.data
        self.wishes_and_drawn = self.fields[[fields.WISHES, fields.DRAWN]]
        self.fields[fields.ONCE] = 1

    @property
    def address(self) -> int:
        """Where the fields stand."""
        return self.fields.ctypes.data

    def write(self, batch: Batch, model: Model) -> None:
        """Write a batch down. Raises BadRequest where it is not one the model can run.

        Single rows are taken apart into spans where they are no crowd: where whole rows, one the
        deepest, would leave lanes idle. `parts` is how many spans there is memory for.
        """
        begins, starts = batch.begins.tolist(), batch.starts.tolist()
        check(batch, model)
        rows, logits = len(batch.ids), len(batch.wanted)
        wanted = logits + len(batch.hidden)
        self.ids[:rows] = batch.ids
        width = min(batch.tables.shape[1], self.tables.shape[1])  # no context needs more
        self.tables[: len(starts), :width] = batch.tables[:, :width]
        table = self.tables.ctypes.data
        for s, start in enumerate(starts):
            first, end = begins[s], begins[s + 1]
            self.positions[first:end] = range(start, start + end - first)
            self.row_tables[first:end] = table + s * self.tables.strides[0]
        self.wanted[:logits], self.wanted[logits:wanted] = batch.wanted, batch.hidden
        self.wishes[: len(batch.wishes)] = batch.wishes
        self.wanted_index[:rows] = -1
        self.wanted_index[self.wanted[:wanted]] = range(wanted)
        single = rows == 1 and wanted == 1
        spans = [start // SPAN + 1 for start in starts]
        few = sum(spans) <= min(self.parts, self.crowd * max(spans))
        split = rows == len(starts) and few
        tasks = self._apart(starts, spans) if split else self._whole(begins, starts)
        f = self.fields
        f[fields.TOKENS], f[fields.WANTED], f[fields.LOGITS] = rows, wanted, logits
        f[fields.SINGLE], f[fields.SPLIT] = single, split
        f[fields.CHUNKS] = -(-rows // (CHUNK * PANEL))
        f[fields.WANTED_CHUNKS] = -(-wanted // (CHUNK * PANEL))
        f[fields.LOGIT_CHUNKS] = -(-logits // (CHUNK * PANEL))
        f[fields.PANELS] = fields.panels(rows)
        f[fields.WANTED_PANELS] = fields.panels(wanted)
        f[fields.TASKS], f[fields.MERGES] = tasks, rows if split else 0
        passes = 1 + batch.ahead
        if split:  # another span would be another task
            passes = min(passes, SPAN - max(start % SPAN for start in starts))
        self._write_draws(logits if len(batch.wishes) else 0, passes)

    def _write_draws(self, draws: int, passes: int) -> None:
        f = self.fields
        f[fields.DRAWS], f[fields.ONWARD] = draws, passes > 1
        f[[fields.WISHES, fields.DRAWN]] = self.wishes_and_drawn  # each pass moves them on
        self.passes, self.drawn = passes, self.all_drawn[: passes * draws].reshape(passes, draws)

    def _whole(self, begins: list[int], starts: list[int]) -> int:
        """Tasks of up to 8 rows of a sequence, through their whole context."""
        count = 0
        for s, start in enumerate(starts):
            for first in range(begins[s], begins[s + 1], PANEL):
                rows = min(PANEL, begins[s + 1] - first)
                position = start + first - begins[s]
                self.tasks[count, :5] = first, rows, position, self.row_tables[first], -1
                count += 1
        return count

    def _apart(self, starts: list[int], spans: list[int]) -> int:
        """Tasks of one span of one row."""
        count = 0
        for row, start in enumerate(starts):
            self.first_tasks[row] = count
            tasks = self.tasks[count : count + spans[row]]
            tasks[:, :4] = row, 1, start, self.row_tables[row]
            tasks[:, 4] = range(spans[row])
            count += spans[row]
        return count
