// Hardware errors that firmware (APEI) reports in the kernel's log. A report is several lines with one number:
// "{3}[Hardware Error]: event severity: recoverable", then for each section "  Error 0, type: corrected" and
// "   section_type: memory error". Lines without a number tell of a boot that is over (BERT) and are not read.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "health/evidence/scan.h"

namespace ms::health {

struct FirmwareSection {
  enum class Kind { other, memory_or_processor, pcie };
  std::string_view severity;  // "fatal", "recoverable", "corrected" or "info"
  bool is_test = false;
  Kind kind = Kind::other;
};

class FirmwareReports {
 public:
  void read(Scan line, bool is_test);
  bool has(Scan line) const;                      // it is a line of a report that was read
  std::vector<FirmwareSection> sections() const;  // a report without a section is one of its own severity

 private:
  struct Report {
    FirmwareSection section;  // the next one
    std::string_view severity;
    std::vector<FirmwareSection> sections = {};
  };
  std::vector<Report> reports_;
  std::map<std::uint64_t, std::size_t> by_number_;  // the last report of it: a module that is loaded again counts anew
};

}  // namespace ms::health
