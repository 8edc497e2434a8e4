// The results of a check as an HTML page.
#pragma once

#include "net/report/report.h"

namespace ms::net {

// A page with a heat map of what every way carries, and one of latencies; no scripts, nothing from elsewhere.
std::string as_html(const Checked& checked);

}  // namespace ms::net
