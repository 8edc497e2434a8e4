// For the subcommands of ms-ckpt: progress from several threads, options that several of them have, and results.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "base/cli.h"
#include "base/clock.h"
#include "base/progress.h"
#include "ckpt/choose.h"

namespace ms::ckpt {

inline constexpr int kOk = 0, kCheckFailed = static_cast<int>(ExitCode::check_failed);

// Shows how many bytes have been moved. Any thread may update it.
class ByteProgress {
 public:
  ByteProgress(std::string label, std::int64_t total_bytes)
      : progress_(std::move(label), total_bytes, "bytes", clock_) {}
  // Returns a callback that counts from `base_bytes`. It must not outlive this object.
  std::function<void(std::int64_t)> update(std::int64_t base_bytes = 0);
  void finish();

 private:
  SystemClock clock_;
  std::mutex mutex_;  // guards the rest
  std::int64_t most_ = 0;
  Progress progress_;
};

// Prints `json` with --json, else `text`. Returns kOk.
int print_result(const Args& args, const std::string& json, const std::string& text);

// The newest complete checkpoint of a directory is used where a user names the directory: says which one that is.
void say_choice(const std::string& path, const Found& found);
// Returns choose_complete(path), and says which one that is.
Found choose_complete_and_say(const std::string& path);

Option json_option();
Option dry_run_option();
Option threads_option();
int threads_of(const Args& args);
Option output_option(std::string doc);
Positional checkpoint_positional();  // PATH: a checkpoint, or a directory of them
Positional directory_positional();   // DIR
std::string directory_of(const Args& args);
// Error("cli.value", user): not a size from 1 byte.
std::int64_t size_of_option(const Args& args, const std::string& option);

}  // namespace ms::ckpt
