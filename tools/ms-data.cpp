// ms-data: text to token files, and what a token file holds. Users run it before a job; ms-train reads what it writes.
#include "data/commands.h"
#include "train/commands/commands.h"

int main(int argc, char** argv) {
  using namespace ms;  // NOLINT: a main
  const Tool tool{
      .name = "ms-data",
      .summary = "encode text to token files, and inspect them",
      .commands = {data::encode_command(), data::info_command(), data::show_command(), data::decode_command(),
                   data::verify_command(), data::merge_command(), data::train_tokenizer_command(),
                   train::sample_command(), data::serve_command()},
      .description =
          "A token file is a pair of files, PREFIX.bin and PREFIX.idx, in Megatron-LM's format. PREFIX.meta.json "
          "beside them names the tokenizer. [data] in ms.toml(5) lists the prefixes that ms-train reads.",
      .examples = {{"ms-data encode --split-on % --output fortunes /usr/share/games/fortunes/computers",
                    "Encode every fortune as a document:"},
                   {"ms-data encode --tokenizer tokenizer.json --field text -o corpus shard-*.jsonl.zst",
                    "Encode JSON Lines with a Hugging Face tokenizer; repeat the command to resume after a kill:"},
                   {"ms-data show fortunes --document 3", "Print one of the fortunes:"},
                   {"ms-data sample run.toml --step 100 --rank 0", "Show the samples of rank 0 in step 100:"}},
      .see_also = {"ms-train(1)", "ms.toml(5)"}};
  return run_tool(tool, argc, argv);
}
