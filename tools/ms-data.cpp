// ms-data: text to token files, and what a token file holds. Users run it before a job; ms-train reads what it writes.
#include "data/commands.h"
#include "train/commands/commands.h"

int main(int argc, char** argv) {
  using namespace ms;  // NOLINT: a main
  const Tool tool{
      .name = "ms-data",
      .summary = "turn text into token files, and show what they hold",
      .commands = {data::encode_command(), data::info_command(), data::show_command(), data::decode_command(),
                   data::verify_command(), data::merge_command(), data::train_tokenizer_command(),
                   train::sample_command()},
      .description =
          "A token file is two files, PREFIX.bin and PREFIX.idx, in the format that Megatron-LM reads and writes; "
          "PREFIX.meta.json beside them notes which tokenizer wrote them. "
          "ms-train reads them by the prefixes that [data] in ms.toml(5) names.",
      .examples = {{.command = "ms-data encode --split-on % --output fortunes /usr/share/games/fortunes/computers",
                    .doc = "Make every fortune a document:"},
                   {.command = "ms-data encode --tokenizer tokenizer.json --field text -o corpus shard-*.jsonl.zst",
                    .doc = "Encode JSON Lines with a tokenizer of Hugging Face, and go on after a kill when repeated:"},
                   {.command = "ms-data show fortunes --document 3", .doc = "Read one of them back:"},
                   {.command = "ms-data sample run.toml --step 100 --rank 0",
                    .doc = "Look at what rank 0 is trained on in step 100:"}},
      .see_also = {"ms-train(1)", "ms.toml(5)"}};
  return run_tool(tool, argc, argv);
}
