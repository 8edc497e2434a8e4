// Text from outside (names of hosts, files and kernels, findings, what other programs say) for terminals and pages: it
// can neither steer them nor pass for a line of ours. Everything that prints does so through print.h or the log, which
// call safe_lines() and safe_line(); what builds lines of several texts calls safe_line() for each.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ms {

// Bytes of the UTF-8 character that the text begins with; 0: it begins with none.
std::size_t utf8_bytes(std::string_view text);
// Length of the text without a UTF-8 character at its end of which bytes are still to come.
std::size_t whole_utf8_bytes(std::string_view text);

// The text on one line: controls become \n, \t, \r, \x1b or \u009b, and so do marks that turn the direction of text or
// end lines; bytes that are not UTF-8 become \xff. All else stays.
std::string safe_line(std::string_view text);
// The same, but newlines and tabs stay.
std::string safe_lines(std::string_view text);
// safe_line() for element contents and attributes of HTML.
std::string safe_html(std::string_view text);
// The value of a Prometheus label: printable ASCII, and nothing that ends it early.
std::string safe_label(std::string_view text);

}  // namespace ms
