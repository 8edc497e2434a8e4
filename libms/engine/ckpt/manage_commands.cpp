#include "ckpt/manage_commands.h"

#include <optional>
#include <string>

#include "base/error.h"
#include "base/print.h"
#include "ckpt/command_support.h"
#include "ckpt/report.h"

namespace ms::ckpt {
namespace {

Positional committed_positional() { return {"PATH", "A committed checkpoint."}; }

int run_prune(const Args& args) {
  if (!args.has("keep-last") && !args.has("keep-every")) {
    throw user_error("ckpt.rule", "no rule for what to keep", "give --keep-last, or --keep-every, or both");
  }
  const std::string dir = directory_of(args);
  PruneOptions options{.policy = {}, .dry_run = args.has("dry-run"), .verify = !args.has("no-verify")};
  options.threads = threads_of(args);
  if (args.has("keep-last")) options.policy.keep_last = args.get_int("keep-last", 1);
  if (args.has("keep-every")) options.policy.keep_every = args.get_int("keep-every", 1);
  std::optional<ByteProgress> progress;
  if (options.verify) options.progress = progress.emplace("verify", 0).update();
  const Pruned pruned = prune(dir, options);
  if (progress) progress->finish();
  return print_result(args, prune_json(pruned), prune_text(pruned));
}

int run_pin(const Args& args) {
  const Place place = place_of(args.get("PATH"));
  pin(place.dir, place.step);
  print_out("step {} of {} is pinned\n", place.step, place.dir);
  return kOk;
}

int run_unpin(const Args& args) {
  const Place place = place_of(args.get("PATH"));
  unpin(place.dir, place.step);
  print_out("step {} of {} is not pinned\n", place.step, place.dir);
  return kOk;
}

int run_repair(const Args& args) {
  const std::string dir = directory_of(args);
  RepairOptions options{.dry_run = args.has("dry-run"), .verify = args.has("verify"), .threads = threads_of(args)};
  std::optional<ByteProgress> progress;
  if (options.verify) {
    std::int64_t total_bytes = 0;
    for (const Found& one : list(dir)) {
      if (one.condition == Condition::complete) total_bytes += one.manifest->size_bytes();
    }
    progress.emplace("verify", total_bytes);
    options.progress = progress->update();
  }
  const RepairReport report = repair(dir, options);
  if (progress) progress->finish();
  const int code = print_result(args, repair_json(dir, report), repair_text(dir, report));
  if (report.unreadable.empty()) return code;
  throw Error(
      "ckpt.unreadable", Blame::storage,
      fmt::format("{} cannot be read: {}", report.unreadable.front().path, report.unreadable.front().reasons.front()),
      "what cannot be read is not known to be damaged, and is left alone");
}

int run_bench(const Args& args) {
  const std::string dir = directory_of(args);
  BenchOptions options{.size_bytes = size_of_option(args, "size"), .threads = threads_of(args)};
  ByteProgress progress("bench", bench_bytes(options));
  options.progress = progress.update();
  const BenchReport report = bench(dir, options);
  progress.finish();
  return print_result(args, bench_json(report), bench_text(report));
}

}  // namespace

Command prune_command() {
  return {
      .name = "prune",
      .summary = "remove old checkpoints",
      .positionals = {directory_positional()},
      .options = {{"keep-last", "N", "Keep the newest N complete checkpoints."},
                  {"keep-every", "N", "Keep checkpoints of steps that are multiples of N."},
                  {"no-verify", "", "Check only the sizes of the newest checkpoint's files, not their data."},
                  dry_run_option(),
                  threads_option(),
                  json_option()},
      .run = run_prune,
      .description =
          "Always keeps pinned checkpoints and the newest complete one. The newest is read first; if it is damaged, "
          "nothing is removed. Refused while a run writes to the directory: runs use checkpoint.keep_last."};
}

Command pin_command() {
  return {.name = "pin",
          .summary = "exempt a checkpoint from prune",
          .positionals = {committed_positional()},
          .run = run_pin};
}

Command unpin_command() {
  return {.name = "unpin", .summary = "undo pin", .positionals = {committed_positional()}, .run = run_unpin};
}

Command repair_command() {
  return {.name = "repair",
          .summary = "remove leftovers of killed saves, and set damaged checkpoints aside",
          .positionals = {directory_positional()},
          .options = {{"verify", "", "Read all data, not only manifests and file sizes."},
                      dry_run_option(),
                      threads_option(),
                      json_option()},
          .run = run_repair,
          .description = "Refused while a run writes to the directory. A run does the same when it starts."};
}

Command bench_command() {
  return {.name = "bench",
          .summary = "compare saving and loading with plain writes and reads",
          .positionals = {{"DIR", "A directory of the file system to measure."}},
          .options = {{"size", "SIZE", "Size of the file.", "2GiB"}, threads_option(), json_option()},
          .run = run_bench,
          .description = "Needs memory of twice --size, and disk space of --size. Removes its files."};
}

}  // namespace ms::ckpt
