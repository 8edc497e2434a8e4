#include "sched/registry.h"

#include <algorithm>

#include "base/error.h"

namespace ms::sched {

// Each is defined in the file of its name.
extern const ScheduleKind kOneForwardOneBackward;
extern const ScheduleKind kInterleaved;
extern const ScheduleKind kZeroBubbleH1;
extern const ScheduleKind kGpipe;

namespace {

constexpr const ScheduleKind* kKinds[] = {&kOneForwardOneBackward, &kInterleaved, &kZeroBubbleH1, &kGpipe};

}  // namespace

std::string ScheduleKind::title() const { return name == key ? std::string(key) : fmt::format("{} {}", name, key); }

std::span<const ScheduleKind* const> schedule_kinds() { return kKinds; }

const ScheduleKind* find_kind(std::string_view key, int chunks) {
  const auto fits = [&](const ScheduleKind* kind) { return kind->key == key && kind->takes(chunks); };
  const auto* const found = std::ranges::find_if(kKinds, fits);
  return found == std::end(kKinds) ? nullptr : *found;
}

bool is_schedule(std::string_view key) {
  return std::ranges::any_of(kKinds, [&](const ScheduleKind* kind) { return kind->key == key; });
}

std::string schedule_keys() {
  std::string text;
  std::string_view before;  // rows with one key are neighbours
  for (const ScheduleKind* kind : kKinds) {
    if (kind->key != before) text += fmt::format("{}{}", text.empty() ? "" : ", ", kind->key);
    before = kind->key;
  }
  return text;
}

std::string schedule_docs() {
  std::string text;
  for (const ScheduleKind* kind : kKinds)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", kind->title(), kind->doc);
  return text;
}

}  // namespace ms::sched
