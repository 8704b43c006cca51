"""The one door: opens a model, and turns text into answers, ids and logits."""

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from localllm import catalog, machine
from localllm.batch import Model
from localllm.embedding import Embedding
from localllm.engine.loop import Loop
from localllm.engine.pace import STRETCH
from localllm.engine.worker import Ticket, Worker
from localllm.errors import BadRequest, LocalLLMError, TooLarge, Unsupported
from localllm.fit import SHARE
from localllm.gguf import GGUF
from localllm.opening import (
    Progress,
    Text,
    load,
    pulling,
    read_text,
    recommended,
    with_template,
)
from localllm.reply import Reply
from localllm.request import Mask, Request
from localllm.sampling import Sampling
from localllm.text.template import ChatTemplate
from localllm.text.tokenizer import Tokenizer
from localllm.units import size


class LLM:
    """An open model. A context manager; every method may be called from any thread.

    name, path: what was opened; server: None, for it is here. metadata: the file's. context: tokens
    a prompt and its answer may have together. defaults: the Sampling that the file or the catalog
    recommends; system: the system prompt of the user's own entry, for whoever starts a chat.
    worker, model: the engine behind it; None with vocab_only. load_ms: how long opening took.
    """

    server: str | None = None

    def __init__(
        self,
        name: str,
        path: Path,
        metadata: Mapping[str, Any],
        text: Text | LocalLLMError,
        model: Model | None = None,
        worker: Worker | None = None,
        *,
        defaults: Sampling | None = None,
        load_ms: float = 0.0,
        on_close: Callable[[], None] = lambda: None,
    ):
        self.name, self.path, self.metadata = name, path, metadata
        self.model, self.worker = model, worker
        self.context = worker.context if worker else 0
        self.defaults, self.load_ms = defaults or Sampling(), load_ms
        self.system: str | None = None
        self._text, self._on_close = text, on_close

    @classmethod
    def open(
        cls,
        model: str,
        *,
        context: int | None = None,
        threads: int | None = None,
        device: str = "auto",
        prefill_chunk: int | None = None,
        kv_type: str = "f16",
        gpu_layers: int | str = "auto",
        vocab_only: bool = False,
        progress: Progress | None = None,
        loop: Loop | None = None,
        budget: int | None = None,
        stretch: float = STRETCH,
        drafts: bool = True,
    ) -> "LLM":
        """Open a catalog name, an alias, a path to a .gguf, hf:user/repo[:quant] or pypi:...

        context: the cap on a prompt and its answer; by default the trained length, or what memory
        allows. prefill_chunk: tokens of a prompt that one forward pass takes at most. gpu_layers:
        how many layers a GPU gets, "auto" for what fits. budget: tokens that a step may compute
        for all requests; stretch: how much longer than usual it may take with a part of a prompt
        in it, 0 for no limit. drafts: guess at tokens that were said before, for the same
        answers sooner. loop: a thread that several models share.
        Raises NotFound, BadFile, Unsupported, and TooLarge with the numbers.
        """
        since = time.perf_counter()
        found = catalog.resolve(model, pull=True, progress=pulling(model, progress))
        entry, gguf = found.entry, GGUF.open(found.path)
        cap = entry.context if context is None else context
        loaded = worker = None
        try:
            metadata = with_template(gguf.metadata, entry.template)
            with ThreadPoolExecutor(1) as reader:
                text = functools.cache(lambda: reader.submit(read_text, metadata))
                if not vocab_only:
                    loaded = load(
                        gguf, found.name, context=cap, threads=threads,
                        device=device, prefill_chunk=prefill_chunk, kv_type=kv_type,
                        gpu_layers=gpu_layers, progress=progress, text=text,
                    )  # fmt: skip
                read = text().result()
            if loaded is not None:
                worker = Worker(loaded, loop=loop, budget=budget, stretch=stretch, drafts=drafts)
        except BaseException:
            if loaded is not None:
                loaded.close()
            gguf.close()
            raise
        llm = cls(found.name, found.path, metadata, read, loaded, worker)
        llm.defaults, llm.system = recommended(metadata, entry.sampling), entry.system
        llm.load_ms, llm._on_close = (time.perf_counter() - since) * 1000, gguf.close
        return llm

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises what kept the tokenizer from being read, where there is none."""
        if isinstance(self._text, LocalLLMError):
            raise self._text
        return self._text[0]

    @property
    def template(self) -> ChatTemplate | None:
        """How a chat becomes a prompt; None for a base model, or one without text."""
        return None if isinstance(self._text, LocalLLMError) else self._text[1]

    def tokenize(self, text: str, special: bool = True, bos: bool = False) -> list[int]:
        """Ids of a text. special: may "<|im_end|>" become that token. bos: put BOS in front."""
        return self.tokenizer.encode(text, special=special, bos=bos)

    def detokenize(self, ids: Sequence[int], special: bool = False) -> str:
        """The text of ids; control tokens have theirs only with `special`."""
        return self.tokenizer.decode(ids, special)

    def generate(self, prompt: str | Sequence[int], **options: Any) -> Reply:
        """Go on from a text, or from ids as they are. The options are those of `submit`.

        BOS is put in front of a text where the file says so and the text does not have it.
        """
        ids = self._with_bos(self.tokenize(prompt)) if isinstance(prompt, str) else list(prompt)
        return self.submit(ids, **options)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        template_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Reply:
        """Answer the last of the messages. The options are those of `submit`."""
        ids = self.prompt(messages, tools, **(template_options or {}))
        return self.submit(ids, **options)

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> list[int]:
        """The ids of a chat, ready to be answered; `extra` goes to the template.

        Only the template's own text may become special tokens, never that of a message.
        """
        tokenizer, template = self.tokenizer, self.template
        if template is None:
            raise Unsupported(
                f"{self.name} is a base model: it has no chat template.",
                "It can go on from a text (generate), but not answer a chat.",
            )
        parts = template.render(
            [dict(m) for m in messages], list(tools) if tools else None, **extra
        )
        return self._with_bos(tokenizer.encode_parts(parts))

    def submit(
        self,
        ids: Sequence[int],
        *,
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        logprobs: int | None = None,
        mask: Mask | None = None,
        client: str = "",
        cache: bool = True,
        pace: float = 0.0,
        **knobs: Any,
    ) -> Reply:
        """Ask the engine to go on from ids.

        sampling: instead of the model's defaults; knobs: Sampling fields that differ from it.
        max_tokens: by default to the end of the answer or of the context. stop: texts that end
        the answer and are not part of it. pace: seconds within which tokens may come together, for
        whoever need not see each by itself; not with stop. Raises BadRequest, PromptTooLong.
        """
        chosen = (sampling or self.defaults).changed(knobs)
        stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
        has_text = not isinstance(self._text, LocalLLMError)
        request = Request(
            self._checked(ids), chosen, max_tokens=max_tokens, logprobs=logprobs, mask=mask,
            client=client, cache=cache, breakers=self._breakers(chosen),
            pieces=self.tokenizer.token_bytes if has_text else None,
            end_ids=self.tokenizer.end_ids if has_text else frozenset(),
        )  # fmt: skip
        token_bytes = self.tokenizer.token_bytes if has_text else lambda _: b""
        ticket = self._submit(request, 0.0 if stops else pace)
        return Reply(ticket, token_bytes, stops, self.load_ms)

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """(len(ids), vocab) f32: row i is what the model expects after ids[: i + 1].

        Adds nothing to ids. Raises TooLarge for a table that does not fit into memory.
        """
        vocab = self._vocab
        needs, free = len(ids) * vocab * 4, machine.available_memory()
        if needs > SHARE * free:
            raise TooLarge(
                f"The logits of {len(ids)} tokens take {size(needs)}; {size(free)} are free.",
                "Ask for fewer tokens at a time.",
            )
        table = np.empty((len(ids), vocab), np.float32)
        for start, rows in self.logit_rows(ids):
            table[start : start + len(rows)] = rows
        return table

    def logit_rows(self, ids: Sequence[int], start: int = 0) -> Iterator[tuple[int, np.ndarray]]:
        """(position, (rows, vocab) f32) from position `start` on, a piece at a time."""
        request = Request(
            self._checked(ids), max_tokens=0, logit_rows=True, logit_start=start, cache=False
        )
        for event in self._submit(request):
            if event.logits is not None:
                yield event.start, event.logits

    def embed(
        self, texts: Sequence[str | Sequence[int]], *, pooling: str = "",
        dimensions: int | None = None,
    ) -> np.ndarray:  # fmt: skip
        """(len(texts), width) f32: a vector of length 1 for each. The options: see `embedding`."""
        return self.embedding(texts, pooling=pooling, dimensions=dimensions).vectors

    def embedding(
        self,
        texts: Sequence[str | Sequence[int]],
        *,
        pooling: str = "",
        dimensions: int | None = None,
        client: str = "",
        cache: bool = True,
    ) -> Embedding:
        """Texts, or ids as they are, as vectors: the model's last hidden rows, pooled.

        pooling: "mean" of all tokens' rows, or the "last" one's; by default what the file says,
        else "mean". dimensions: only the first so many numbers of each vector, scaled to length 1
        again. No text becomes special tokens; BOS is put in front where the file says so. Raises
        BadRequest, and PromptTooLong: nothing is cut off.
        """
        assert self._vocab and self.worker is not None and self.model is not None
        if dimensions is not None and not 1 <= dimensions <= self.model.width:
            raise BadRequest(f"dimensions must be from 1 to {self.model.width}, the model's width.")
        if not texts:
            raise BadRequest("There is nothing to embed.")
        kind = pooling or self._pooling
        requests = [
            Request(
                self._checked(self._plain(text) if isinstance(text, str) else text),
                max_tokens=0, pooling=kind, client=client, cache=cache,
            )
            for text in texts
        ]  # fmt: skip
        return Embedding(self.worker, requests, dimensions)

    def close(self) -> None:
        """Give back threads, memory and the file."""
        if self.worker:
            self.worker.close()
        if self.model:
            self.model.close()
        self._on_close()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _vocab(self) -> int:
        """Token ids are below this. Raises where only a vocabulary was opened."""
        if self.model is None:
            raise BadRequest(
                f"Only the vocabulary of {self.name} was opened.", "Open it without vocab_only."
            )
        return self.model.vocab

    def _submit(self, request: Request, pace: float = 0.0) -> Ticket:
        assert self.worker is not None  # there is one where there is a model
        return self.worker.submit(request, pace)

    def _checked(self, ids: Sequence[int]) -> list[int]:
        """The ids as a list of Python ints the model has: kernels check none."""
        vocab, checked = self._vocab, [int(id) for id in ids]
        for id in checked:
            if not 0 <= id < vocab:
                raise BadRequest(f"There is no token {id}: the model has {vocab}.")
        if not checked:
            raise BadRequest("The prompt is empty.", "Give the model at least one token.")
        return checked

    def _plain(self, text: str) -> list[int]:
        return self._with_bos(self.tokenize(text, special=False))

    @property
    def _pooling(self) -> str:
        """What the file says of pooling (llama.cpp's enum llama_pooling_type), else the mean."""
        name = self.metadata.get("general.architecture")
        return "last" if self.metadata.get(f"{name}.pooling_type") == 3 else "mean"

    def _with_bos(self, ids: list[int]) -> list[int]:
        """BOS in front, once, where the file asks for it."""
        bos = self.tokenizer.bos
        missing = self.tokenizer.add_bos and bos is not None and ids[:1] != [bos]
        return [bos, *ids] if missing and bos is not None else ids

    def _breakers(self, sampling: Sampling) -> tuple[tuple[int, ...], ...]:
        """The token sequences of dry's breakers, which are texts."""
        if not sampling.dry_multiplier:
            return ()
        texts = sampling.dry_sequence_breakers
        return tuple(tuple(self.tokenize(text, special=False)) for text in texts)
