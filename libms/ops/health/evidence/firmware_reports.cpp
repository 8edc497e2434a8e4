#include "health/evidence/firmware_reports.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace ms::health {
namespace {

using Kind = FirmwareSection::Kind;

constexpr std::string_view kSeverities[] = {"fatal", "recoverable", "corrected", "info"};
struct SectionRow {
  std::string_view name;
  Kind kind;
};
constexpr SectionRow kSections[] = {{"memory error", Kind::memory_or_processor},
                                    {"general processor error", Kind::memory_or_processor},
                                    {"IA32/X64 processor error", Kind::memory_or_processor},
                                    {"ARM processor error", Kind::memory_or_processor},
                                    {"PCIe error", Kind::pcie}};

std::optional<std::uint64_t> scan_number(Scan& line) {
  const auto number = line.literal("{") ? line.number() : std::nullopt;
  return line.literal("}[Hardware Error]:") ? number : std::nullopt;
}

std::string_view severity_in(std::string_view text) {
  const auto found = std::ranges::find(kSeverities, text);
  return found == std::end(kSeverities) ? std::string_view() : *found;
}

}  // namespace

void FirmwareReports::read(Scan line, bool is_test) {
  const auto number = scan_number(line);
  if (!number) return;
  line.blanks();
  const auto known = by_number_.find(*number);
  if (line.literal("event severity: ")) {
    const std::string_view severity = severity_in(line.rest());
    if (known != by_number_.end()) by_number_.erase(known);
    if (severity.empty() || severity == "info") return;
    by_number_[*number] = reports_.size();
    reports_.push_back({.section = {.severity = severity, .is_test = is_test}, .severity = severity});
    return;
  }
  if (known == by_number_.end()) return;
  Report& report = reports_[known->second];
  if (line.literal("Error ")) {
    if (!line.number() || !line.literal(", type: ")) return;
    const std::string_view severity = severity_in(line.rest());
    report.section.severity = severity.empty() ? report.severity : severity;
  } else if (line.literal("section_type: ")) {
    const auto row = std::ranges::find_if(kSections, [&](const auto& each) { return each.name == line.rest(); });
    report.section.kind = row == std::end(kSections) ? Kind::other : row->kind;
    report.sections.push_back(report.section);
  }
}

bool FirmwareReports::has(Scan line) const {
  const auto number = scan_number(line);
  return number && by_number_.contains(*number);
}

std::vector<FirmwareSection> FirmwareReports::sections() const {
  std::vector<FirmwareSection> sections;
  for (const Report& report : reports_) {
    std::ranges::copy(report.sections, std::back_inserter(sections));
    if (report.sections.empty()) sections.push_back(report.section);
  }
  return sections;
}

}  // namespace ms::health
