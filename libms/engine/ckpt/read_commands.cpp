#include "ckpt/manage_commands.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "ckpt/command_support.h"
#include "ckpt/report.h"

namespace ms::ckpt {
namespace {

int run_ls(const Args& args) {
  const std::string dir = directory_of(args);
  const std::vector<Found> found = list(dir);
  return print_result(args, list_json(dir, found), list_text(dir, found, SystemClock().wall_s()));
}

int run_show(const Args& args) {
  const Found found = choose(args.get("PATH"));
  say_choice(args.get("PATH"), found);
  if (!found.manifest) {
    throw Error("ckpt.manifest", Blame::storage, fmt::format("{} is not a checkpoint: {}", found.path, found.problem));
  }
  if (args.has("config")) return print_result(args, show_json(found), found.manifest->config);
  return print_result(args, show_json(found), show_text(found, args.has("params")));
}

int run_verify(const Args& args) {
  const std::string path = args.get("PATH");
  const std::vector<Found> chosen = args.has("newest") ? std::vector{choose(path)} : choose_all(path);
  if (args.has("newest")) say_choice(path, chosen.front());
  std::int64_t total_bytes = 0, done_bytes = 0;
  for (const Found& one : chosen) total_bytes += one.manifest ? one.manifest->size_bytes() : 0;
  ByteProgress progress("verify", total_bytes);
  std::vector<Verified> verified;
  bool sound = true, readable = true;
  for (const Found& one : chosen) {
    verified.push_back(examine(one, threads_of(args), progress.update(done_bytes)));
    done_bytes += verified.back().size_bytes;
    sound = sound && (verified.back().problems.empty() || verified.back().unreadable);
    readable = readable && !verified.back().unreadable;
  }
  progress.finish();
  print_result(args, verify_json(verified), verify_text(verified));
  if (!sound) return kCheckFailed;
  return readable ? kOk : static_cast<int>(ExitCode::storage);
}

int run_diff(const Args& args) {
  const Parameters a(choose_complete_and_say(args.get("A")).path), b(choose_complete_and_say(args.get("B")).path);
  ByteProgress progress("diff", std::min(a.manifest().size_bytes(), b.manifest().size_bytes()));
  const Diff found = diff(a, b, threads_of(args), progress.update());
  progress.finish();
  print_result(args, diff_json(a.path(), b.path(), found), diff_text(a.path(), b.path(), found, args.has("all")));
  return found.equal() ? kOk : kCheckFailed;
}

}  // namespace

Command ls_command() {
  return {.name = "ls",
          .summary = "list the checkpoints of a directory, and which one a run would resume from",
          .positionals = {directory_positional()},
          .options = {json_option()},
          .run = run_ls,
          .description =
              "Lists the oldest first. Includes checkpoints that are being saved or were left by a killed save, and "
              "damaged ones with the reason. Reads manifests and file sizes, not the data."};
}

Command show_command() {
  return {.name = "show",
          .summary = "show what a checkpoint holds",
          .positionals = {checkpoint_positional()},
          .options = {{"params", "", "Print every parameter with its shape and stored states."},
                      {"config", "", "Print the resolved configuration of the run that wrote the checkpoint, as TOML."},
                      json_option()},
          .run = run_show};
}

Command verify_command() {
  return {
      .name = "verify",
      .summary = "read checkpoints and check them against their hashes",
      .positionals = {{"PATH", "A checkpoint, or a directory: every committed checkpoint in it."}},
      .options = {{"newest", "", "Verify only the newest complete checkpoint of a directory."},
                  threads_option(),
                  json_option()},
      .run = run_verify,
      .description =
          "Exits with 0 if all checkpoints are sound, 1 if one is damaged, and 74 if the system refuses to read one, "
          "for example for lack of permission."};
}

Command diff_command() {
  return {.name = "diff",
          .summary = "compare two checkpoints, also of different layouts",
          .positionals = {{"A", "A checkpoint, or a directory: its newest complete checkpoint."},
                          {"B", "Another checkpoint."}},
          .options = {{"all", "", "Also print equal states."}, threads_option(), json_option()},
          .run = run_diff,
          .description =
              "Compares the configuration, the mesh, the position in the data, and every state of every parameter. "
              "Exits with 0 if the training state is bitwise equal: step, data position, parameters and optimizer. "
              "Differences in the configuration and the mesh are printed, but do not count."};
}

}  // namespace ms::ckpt
