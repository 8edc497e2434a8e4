#include "watch/beat.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/log.h"
#include "base/number.h"
#include "base/text.h"

namespace ms::watch {
namespace {

bool is_beat_name(std::string_view text) {
  return !text.empty() && text.size() <= 32 &&
         std::ranges::all_of(text, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

}  // namespace

std::optional<Beat> parse_beat(std::string_view text) {
  if (text.size() > kMaxBeatBytes) return std::nullopt;
  Beat beat;
  bool said = false;
  for (const std::string& word : split(trim(text), ' ')) {
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) return std::nullopt;
    const std::string key = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    if (!is_beat_name(key)) return std::nullopt;
    said = true;
    if (key == "rank") {
      const std::optional<int> rank = whole_number<int>(value);
      if (!rank || *rank < 0) return std::nullopt;
      beat.rank = *rank;
    } else if (key == "step") {
      const std::optional<std::int64_t> step = whole_number<std::int64_t>(value);
      if (!step || *step < 0) return std::nullopt;
      beat.step = *step;
    } else if (key == "section") {
      if (!is_beat_name(value)) return std::nullopt;
      beat.section = value;
    } else {
      const std::optional<double> number = whole_number<double>(value);
      if (!number || beat.numbers.size() == kMaxBeatNumbers) return std::nullopt;
      beat.numbers[key] = *number;
    }
  }
  if (!said) return std::nullopt;
  return beat;
}

std::string format_beat(const Beat& beat) {
  std::string text;
  const auto add = [&](std::string_view word) { text += text.empty() ? word : fmt::format(" {}", word); };
  if (beat.rank >= 0) add(fmt::format("rank={}", beat.rank));
  if (beat.step >= 0) add(fmt::format("step={}", beat.step));
  if (!beat.section.empty()) add(fmt::format("section={}", beat.section));
  for (const auto& [name, value] : beat.numbers) add(fmt::format("{}={:.9g}", name, value));
  return text;
}

Heartbeat::Heartbeat(const char* path) : path_(path == nullptr ? "" : path) {
  if (path_.empty()) return;
  if (path_.size() >= sizeof(sockaddr_un::sun_path)) {
    log::warn("watch", "MS_HEARTBEAT is longer than a socket's name may be: no heartbeats");
    return;
  }
  fd_ = UniqueFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void Heartbeat::send(const Beat& beat) const noexcept {
  if (!fd_) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, path_.c_str(), path_.size() + 1);
  const std::string text = format_beat(beat);
  // An agent that is being replaced is not there for a moment: the next beat finds the new one.
  static_cast<void>(sendto(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                           reinterpret_cast<const sockaddr*>(&to), sizeof to));
}

}  // namespace ms::watch
