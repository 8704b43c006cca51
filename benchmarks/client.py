"""One streamed answer through the `openai` client: `serve.py` runs this in a process of its own.

python benchmarks/client.py URL MODEL TOKENS     -> {"tokens", "seconds"} from first to last
"""

import json
import sys
import time

import openai


def main(url: str, model: str, tokens: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        for wanted in (8, int(tokens)):  # the first connects
            times, count = [], 0
            stream = client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": "Tell me a long story."}],
                max_tokens=wanted,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"ignore_eos": True, "seed": 1},
            )
            for chunk in stream:
                if chunk.choices and chunk.choices[0].delta.content:
                    times.append(time.perf_counter())
                if chunk.usage:
                    count = chunk.usage.completion_tokens
    print(json.dumps({"tokens": count - 1, "seconds": times[-1] - times[0]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
