#include "watch/evidence.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/sysroot.h"
#include "watch/devices.h"
#include "watch/stacks.h"
#include "watch/verdict.h"

namespace ms::watch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kKeptStarts = 8;

std::string evidence_in(const std::string& run_dir) { return run_dir + "/evidence"; }

std::string host_state(const Sysroot& root) {
  std::string text;
  for (const char* path : {"/proc/loadavg", "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io"}) {
    if (const auto state = root.read(path)) text += fmt::format("{}: {}\n", path, *state);
  }
  for (const auto& [path, key] :
       {std::pair{"/proc/meminfo", "MemAvailable:"}, std::pair{"/proc/self/status", "VmRSS:"}}) {
    const std::string state = root.read(path).value_or("");
    const std::size_t begin = state.find(key);
    if (begin != std::string::npos)
      text += fmt::format("{}: {}\n", path, state.substr(begin, state.find('\n', begin) - begin));
  }
  return text;
}

std::string write_as(const std::string& run_dir, const std::string& nonce, const std::string& name,
                     const std::string& text) noexcept {
  try {
    if (text.empty() || !is_start(run_dir, nonce)) return "";
    const std::string directory = fmt::format("{}/{}", evidence_in(run_dir), nonce);
    make_directories(directory);
    std::string path = fmt::format("{}/{}", directory, name);
    write_file_atomic(path, text);
    return path;
  } catch (const std::exception& failed) {
    log::warn("watch", "the evidence could not be written: {}", failed.what());
    return "";
  }
}

}  // namespace

void Evidence::take(const std::string& why, int blamed_pid, const std::string& diag) noexcept {
  try {
    if (!diag.empty()) {
      const std::lock_guard lock(mutex_);
      devices_ = std::async(std::launch::async, [diag] { return device_state(diag); });
    }
    const Sysroot root;
    std::string text = fmt::format("{}\n\nprocess {}\n{}\n{}", why, getpid(), own_stacks(), host_state(root));
    if (blamed_pid != 0 && blamed_pid != getpid()) {
      text += fmt::format("\nprocess {}, which is blamed: state {}\n{}", blamed_pid,
                          process_stat(root, blamed_pid).state, kernel_stacks(root, blamed_pid));
    }
    const std::lock_guard lock(mutex_);
    text_ = std::move(text);
  } catch (const std::exception& failed) {  // there may be no memory or descriptor left, and the run ends anyway
    log::warn("watch", "no evidence is taken: {}", failed.what());
  }
}

std::string Evidence::write(const std::string& run_dir, const std::string& nonce, const std::string& name) noexcept {
  const std::lock_guard lock(mutex_);
  return write_as(run_dir, nonce, name, text_);
}

void Evidence::write_devices(const std::string& run_dir, const std::string& nonce, const std::string& node) noexcept {
  const std::lock_guard lock(mutex_);
  if (devices_.valid()) write_as(run_dir, nonce, fmt::format("devices-{}.txt", node), devices_.get());
}

void prune_evidence(const std::string& run_dir) noexcept {
  std::error_code error;
  if (fs::is_symlink(evidence_in(run_dir), error)) return;
  std::vector<std::pair<fs::file_time_type, fs::path>> starts;
  for (fs::directory_iterator at(evidence_in(run_dir), error); !error && at != fs::directory_iterator();
       at.increment(error))
    starts.emplace_back(fs::last_write_time(at->path(), error), at->path());
  std::ranges::sort(starts);
  for (std::size_t i = 0; i + kKeptStarts < starts.size(); ++i) fs::remove_all(starts[i].second, error);
}

}  // namespace ms::watch
