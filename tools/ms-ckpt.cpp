// ms-ckpt: what checkpoints there are, whether they are sound, what they hold, and the same state in another form.
#include "ckpt/manage_commands.h"
#include "foreign/commands.h"
#include "train/commands/checkpoint_commands.h"

int main(int argc, char** argv) {
  using namespace ms;  // NOLINT: a main
  const Tool tool{
      .name = "ms-ckpt",
      .summary = "list, verify, compare, convert and prune checkpoints",
      .commands = {foreign::ls_command(), foreign::show_command(), foreign::verify_command(), foreign::diff_command(),
                   train::hash_command(), train::reshard_command(), train::import_command(), train::export_command(),
                   ckpt::prune_command(), ckpt::pin_command(), ckpt::unpin_command(), ckpt::repair_command(),
                   ckpt::bench_command()},
      .description =
          "A checkpoint is a directory step-N, which ms-train commits by a rename. ms-ckpt(5) describes its files. It "
          "can be loaded, compared and resharded independently of the mesh that wrote it.",
      .examples = {{"ms-ckpt ls runs/a/ckpt", "List the checkpoints:"},
                   {"ms-ckpt verify --newest runs/a/ckpt", "Verify the newest one:"},
                   {"ms-ckpt export --format hf -o gpt2-ours runs/a/ckpt",
                    "Export the weights as a Hugging Face model:"},
                   {"ms-ckpt prune --keep-last 3 --keep-every 10000 --dry-run runs/a/ckpt",
                    "List what prune would remove:"}},
      .see_also = {"ms-ckpt(5)", "ms-train(1)", "ms.toml(5)"}};
  return run_tool(tool, argc, argv);
}
