#include "foreign/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/print.h"
#include "ckpt/command_support.h"
#include "ckpt/manage_commands.h"
#include "ckpt/report.h"
#include "foreign/diff.h"
#include "foreign/report.h"

namespace ms::foreign {
namespace {

using ckpt::kCheckFailed;
using ckpt::kOk;

// Checkpoints of ms-train in a directory hide those of other programs beside them; names alone do not make one of ours.
bool is_ours(const std::string& path) {
  if (ckpt::is_checkpoint(path)) return ckpt::look(path).manifest || format_of(path) == nullptr;
  const std::vector<ckpt::Found> found = ckpt::list(path);
  const auto has_manifest = [](const ckpt::Found& one) { return one.manifest.has_value(); };
  return std::ranges::any_of(found, has_manifest) || (!found.empty() && find_checkpoints(path).empty());
}

// The command, which `others` runs where the path holds checkpoints of other programs.
Command extended(Command command, std::string positional, int (*others)(const Args&, const std::vector<Place>&)) {
  command.run = [own = std::move(command.run), positional = std::move(positional), others](const Args& args) {
    const std::vector<Place> places = others_in(args.get(positional));
    return places.empty() ? own(args) : others(args, places);
  };
  return command;
}

int list_others(const Args& args, const std::vector<Place>& places) {
  std::vector<Checkpoint> checkpoints;
  for (const Place& place : places) checkpoints.push_back(open(place.path));
  const std::string dir = args.get("DIR");
  return ckpt::print_result(args, list_json(dir, places, checkpoints), list_text(dir, places, checkpoints));
}

int show_other(const Args& args, const std::vector<Place>& places) {
  if (args.has("config"))
    throw user_error("ckpt.foreign", fmt::format("{} has no configuration of ms-train", places.back().path));
  const Checkpoint checkpoint = open(places.back().path);
  return ckpt::print_result(args, show_json(checkpoint), show_text(checkpoint, args.has("params")));
}

int verify_others(const Args& args, const std::vector<Place>& places) {
  std::vector<Verified> verified;
  bool damaged = false, unreadable = false;
  ckpt::ByteProgress progress("verify", 0);
  for (std::size_t i = args.has("newest") ? places.size() - 1 : 0; i < places.size(); ++i) {
    verified.push_back(verify(open(places[i].path), ckpt::threads_of(args), progress.update()));
    damaged = damaged || !verified.back().problems.empty();
    unreadable = unreadable || verified.back().unreadable;
  }
  progress.finish();
  ckpt::print_result(args, verify_json(verified), verify_text(verified));
  return damaged ? kCheckFailed : unreadable ? static_cast<int>(ExitCode::storage) : kOk;
}

int diff_others(const Args& args, const std::vector<Place>& places) {
  const std::vector<Place> others = others_in(args.get("B"));
  if (others.empty())
    throw user_error("ckpt.foreign",
                     fmt::format("{} is of another program, and {} is not", args.get("A"), args.get("B")));
  const Checkpoint a = open(places.back().path), b = open(others.back().path);
  for (const Checkpoint* one : {&a, &b}) {
    if (!one->finished)
      throw Error("ckpt.incomplete", Blame::storage, fmt::format("{}: {}", one->path, one->problems.front().text));
  }
  ckpt::ByteProgress progress("diff", size_bytes(a));
  const Diff found = diff(a, b, progress.update());
  progress.finish();
  ckpt::print_result(args, diff_json(a, b, found), diff_text(a, b, found, args.has("all")));
  if (!found.equal()) return kCheckFailed;
  return found.unread.empty() ? kOk : static_cast<int>(ExitCode::storage);
}

// Prints the newest sound checkpoint of a directory, and why newer ones were passed over.
int print_latest_good(const Args& args) {
  const std::string path = args.get("PATH");
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) {
    print_err("{} does not exist: no checkpoint yet\n", path);
    return kOk;
  }
  struct One {
    std::string path;
    bool sound = false, unreadable = false;
    std::string why;
  };
  std::vector<std::function<One()>> newest_last;
  const int threads = ckpt::threads_of(args);
  if (std::filesystem::is_directory(path, error) && is_ours(path)) {
    for (const ckpt::Found& found : ckpt::choose_all(path)) {
      newest_last.emplace_back([found, threads] {
        const ckpt::Verified one = ckpt::examine(found, threads, {});
        return One{found.path, one.problems.empty(), one.unreadable, ckpt::verify_text({one})};
      });
    }
  } else {
    for (const Place& place : find_checkpoints(path)) {
      newest_last.emplace_back([place, threads] {
        const Verified one = verify(open(place.path), threads, {});
        return One{place.path, one.sound(), one.unreadable && one.problems.empty(), verify_text({one})};
      });
    }
  }
  bool unreadable = false;
  for (std::size_t i = newest_last.size(); i-- > 0;) {
    const One one = newest_last[i]();
    if (one.sound) {
      print_out("{}\n", one.path);
      return kOk;
    }
    unreadable = unreadable || one.unreadable;
    print_err("{}", one.why);
  }
  if (newest_last.empty() && !std::filesystem::is_empty(path, error)) {
    throw user_error("ckpt.none", fmt::format("{} holds no checkpoint of a known format", path),
                     "a directory that is empty, or not there, is one without a checkpoint yet");
  }
  if (newest_last.empty()) print_err("{} holds no checkpoint yet\n", path);
  return newest_last.empty() ? kOk : unreadable ? static_cast<int>(ExitCode::storage) : kCheckFailed;
}

constexpr std::string_view kOthers =
    "\n\nAlso reads checkpoints of other programs: directories of torch.distributed.checkpoint (FSDP, torchtitan), "
    "torch_dist of Megatron-LM, DeepSpeed (ZeRO and universal), and files of torch.save. Neither PyTorch nor the model "
    "is needed, and nothing that a pickle names is imported or run.";

}  // namespace

std::vector<Place> others_in(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error) && is_ours(path)) return {};
  return find_checkpoints(path);
}

Command ls_command() {
  Command command = ckpt::ls_command();
  command.description += kOthers;
  return extended(std::move(command), "DIR", list_others);
}

Command show_command() {
  Command command = ckpt::show_command();
  command.description += std::string(kOthers).substr(2);
  return extended(std::move(command), "PATH", show_other);
}

Command diff_command() {
  Command command = ckpt::diff_command();
  command.description +=
      "\n\nOf two checkpoints of other programs (ms-ckpt verify says which), all tensors are compared by name, in "
      "whatever formats and layouts they are saved. Values that are not tensors, such as a number of steps, are "
      "compared as well: those that differ are printed, and do not count.";
  return extended(std::move(command), "A", diff_others);
}

Command verify_command() {
  Command command = ckpt::verify_command();
  command.options.insert(command.options.begin() + 1,
                         {.name = "latest-good",
                          .doc = "Print only the path of the newest sound checkpoint of a directory, for job scripts. "
                                 "Begins with the newest, and says on standard error why it passes one over. Prints "
                                 "nothing if the directory is empty or not there."});
  command.description += kOthers;
  command.description +=
      "\n\nOf those, each file must have the bytes that the metadata promises, without gaps and overlaps; the parts of "
      "a tensor must cover it once; archives must have their directory, the right sizes and CRC-32; types and shapes "
      "must agree; no value may be NaN or infinite, except in masks and in what may be padding of Megatron-LM's "
      "buckets, which it does not set. A NaN in any tensor makes a checkpoint unsound, also in one that only logs. A "
      "save that was cut off is never sound. What may have a good reason is printed as in doubt and does not count: "
      "files that the metadata does not name, metadata older than the files, unequal numbers of optimizer steps. The "
      "format does not show whether two files of the same layout were swapped.";
  command = extended(std::move(command), "PATH", verify_others);
  command.run = [others = std::move(command.run)](const Args& args) {
    return args.has("latest-good") ? print_latest_good(args) : others(args);
  };
  return command;
}

}  // namespace ms::foreign
