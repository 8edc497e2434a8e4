#include "ckpt/command_support.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/print.h"
#include "base/text.h"

namespace ms::ckpt {

std::function<void(std::int64_t)> ByteProgress::update(std::int64_t base_bytes) {
  return [this, base_bytes](std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    most_ = std::max(most_, base_bytes + bytes);
    progress_.update(most_);
  };
}

void ByteProgress::finish() {
  if (most_ > 0) progress_.finish();
}

int print_result(const Args& args, const std::string& json, const std::string& text) {
  write_out(args.has("json") ? json : text);
  return kOk;
}

void say_choice(const std::string& path, const Found& found) {
  if (!is_checkpoint(path)) print_err("{}: the newest complete one is {}\n", path, found.path);
}

Found choose_complete_and_say(const std::string& path) {
  Found found = choose_complete(path);
  say_choice(path, found);
  return found;
}

Option json_option() { return {"json", "", "Print one JSON document instead of text."}; }
Option dry_run_option() {
  return {.name = "dry-run", .doc = "Print what would be done, and change nothing.", .letter = 'n'};
}
Option threads_option() { return {"threads", "N", "Read this many blocks of 16 MiB at a time.", "2"}; }
int threads_of(const Args& args) { return static_cast<int>(args.get_int("threads", 1, 1024)); }

Option output_option(std::string doc) {
  return {.name = "output", .value = "DIR", .doc = std::move(doc), .letter = 'o', .required = true};
}

Positional checkpoint_positional() { return {"PATH", "A checkpoint, or a directory: its newest complete checkpoint."}; }
Positional directory_positional() { return {"DIR", "A directory of checkpoints: a run's checkpoint.dir."}; }
std::string directory_of(const Args& args) {
  require_directory(args.get("DIR"));
  return args.get("DIR");
}

std::int64_t size_of_option(const Args& args, const std::string& option) {
  const std::optional<std::int64_t> size_bytes = parse_size_bytes(args.get(option));
  if (!size_bytes || *size_bytes < 1) {
    throw user_error("cli.value", fmt::format("--{} '{}' is not a size, as 2GiB is", option, args.get(option)));
  }
  return *size_bytes;
}

}  // namespace ms::ckpt
