"""What can go wrong for a user, each with a hint that says what to do.

LocalLLMError
├── BadFile       the file is not what it claims to be
├── Unsupported   the file is fine, but localllm cannot run it
├── NotFound      no such model, file or setting
├── TooLarge      it does not fit: memory, disk, context
│   └── PromptTooLong   more tokens than the context holds; carries both numbers
├── BadRequest    a value that no request may have
├── Unavailable   a network, device or service that is not there
├── Busy          too much to do at the moment; try again later
└── Cancelled     somebody asked to stop
"""


class LocalLLMError(Exception):
    """Base of every error a user may see: `message` says what is wrong, `hint` what to do."""

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.message, self.hint = message, hint


class BadFile(LocalLLMError):
    """A file that is truncated, damaged or not of the kind its name says."""


class Unsupported(LocalLLMError):
    """An architecture, block format, tokenizer or feature that localllm does not run."""


class NotFound(LocalLLMError):
    """A model, file or setting that is not there."""


class TooLarge(LocalLLMError):
    """Something that does not fit into memory, disk or context."""


class PromptTooLong(TooLarge):
    """A prompt of `prompt_tokens` tokens for a context of `context` tokens."""

    def __init__(self, prompt_tokens: int, context: int):
        super().__init__(
            # agents know llama-server's words for it, and then shorten a conversation themselves
            f"The prompt has {prompt_tokens} tokens and exceeds the available context size of "
            f"{context}.",
            "Shorten the prompt, or open the model with a longer context.",
        )
        self.prompt_tokens, self.context = prompt_tokens, context


class BadRequest(LocalLLMError):
    """A value outside what a request may hold."""


class Unavailable(LocalLLMError):
    """A network, device or service that does not answer."""


class Busy(LocalLLMError):
    """More work than can be queued."""


class Cancelled(LocalLLMError):
    """The user asked to stop."""
