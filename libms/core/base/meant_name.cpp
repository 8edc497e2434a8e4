#include "base/meant_name.h"

#include <algorithm>

#include "base/other_names.h"
#include "base/text.h"

namespace ms {
namespace {

// Words of other programs for a choice.
constexpr OtherNames kOtherWords[] = {
    {"cuda", "gpu"}, {"fp32", "float32"}, {"bf16", "bfloat16"}, {"ring", "p2p"}, {"all-to-all", "a2a"}};

std::optional<std::string> ours_of(std::string_view theirs, std::span<const OtherNames> others) {
  for (const OtherNames& row : others) {
    const std::vector<std::string> names = split(row.theirs, ' ');
    if (std::ranges::find(names, theirs) != names.end()) return std::string(row.ours);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> meant_key(std::string_view name, std::span<const KnownKey> known) {
  std::string typed(name);
  std::ranges::replace(typed, '-', '_');
  const std::size_t dot = typed.rfind('.');
  const std::string key = dot == std::string::npos ? typed : typed.substr(dot + 1);
  std::string section = dot == std::string::npos ? "" : typed.substr(0, dot);
  section = ours_of(section, kOtherNames).value_or(section);
  std::vector<std::string> siblings, all;
  for (const KnownKey& each : known) all.push_back(each.section + "." + each.key);
  for (const std::string_view theirs : {std::string_view(typed), std::string_view(key)}) {
    const auto ours = ours_of(theirs, kOtherNames);
    if (ours && std::ranges::count(all, *ours) > 0) return ours;
  }
  const KnownKey* elsewhere = nullptr;
  for (const KnownKey& each : known) {
    if (each.section == section) siblings.push_back(each.key);
    if (each.key != key) continue;
    if (!elsewhere || edit_distance(each.section, section) < edit_distance(elsewhere->section, section)) {
      elsewhere = &each;
    }
  }
  if (const auto sibling = nearest_name(key, siblings)) return section + "." + *sibling;
  return elsewhere ? elsewhere->section + "." + elsewhere->key : nearest_name(typed, all);
}

std::optional<std::string> meant_section(std::string_view name, std::span<const std::string> sections) {
  if (auto ours = ours_of(name, kOtherNames); ours && std::ranges::count(sections, *ours) > 0) return ours;
  return nearest_name(name, sections);
}

std::optional<std::string> meant_choice(std::string_view word, std::span<const std::string> choices) {
  if (auto ours = ours_of(word, kOtherWords); ours && std::ranges::count(choices, *ours) > 0) return ours;
  return nearest_name(word, choices);
}

}  // namespace ms
