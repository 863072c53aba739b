"""A policy that answers texts, from a workdir's checkpoint or from a pretrained model: for the command `sample`."""

import dataclasses
from pathlib import Path

import jax

from pods_jax.config.schema import Config
from pods_jax.data.tokenizers import Tokenizer, load_tokenizer
from pods_jax.models import Decoder, load_pretrained
from pods_jax.models.decoder import Params
from pods_jax.rollout import generate
from pods_jax.training.checkpoint import restored_run
from pods_jax.training.reporting import Reporter


@dataclasses.dataclass(frozen=True)
class Speaker:
    """A policy with its tokenizer.

    Attributes:
      system: the system message; None for none.
      template: the user's message, with the text in place of "{question}".
    """

    model: Decoder
    params: Params
    tokenizer: Tokenizer
    system: str | None = None
    template: str = "{question}"

    def answers(self, text: str, seed: int, *, num_samples: int, temperature: float, max_new_tokens: int) -> list[str]:
        """Completions of the prompt that the text makes. temperature 0: the most probable tokens.

        Raises:
          UserError: the text cannot be tokenised.
        """
        prompt = self.tokenizer.encode_prompt(self.template.replace("{question}", text), self.system)
        completions = generate(
            self.model,
            self.params,
            [prompt],
            num_generations=num_samples,
            max_new_tokens=max_new_tokens,
            key=jax.random.key(seed),
            temperature=temperature,
            eos_ids=self.tokenizer.eos_ids,
            pad_id=self.tokenizer.pad_id,
            absent_ids=self.tokenizer.absent_ids(self.model.config.vocab_size),
        )
        rows = zip(completions.tokens[0], completions.lengths[0], strict=True)
        return [self.tokenizer.decode(row[:length].tolist()) for row, length in rows]


def of_checkpoint(config: Config, workdir: str | Path, reporter: Reporter, checkpoint: str = "newest") -> Speaker:
    """The policy of a workdir, which gets its prompts in the form of its training.

    Raises:
      UserError: as `restored_run`.
    """
    with restored_run(config, workdir, reporter, checkpoint) as run:
        params = run.sampling_params()
        return Speaker(run.model, params, run.data.tokenizer, run.data.dataset.system, config.data.prompt_template)


def of_model(path: str | Path, system: str | None = None) -> Speaker:
    """A pretrained model: a folder, a hub id, a .gguf file or "smollm2-135m".

    Raises:
      UserError: there is no such model, or it is not supported.
    """
    tokenizer = load_tokenizer(path)
    return Speaker(*load_pretrained(path, stacked=False), tokenizer, system)
