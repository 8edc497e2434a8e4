// The results of a check as JSON documents.
#pragma once

#include "net/report/report.h"

namespace ms::net {

std::string as_json(const Checked& checked);
std::string findings_json(const std::string& command, const std::vector<Finding>& findings,
                          const std::vector<std::string>& not_run);

// The document of a command that could not run here: JSON, else one line of text.
std::string not_run(const std::string& command, const std::string& why, bool json);

}  // namespace ms::net
