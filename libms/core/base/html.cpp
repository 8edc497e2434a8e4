#include "base/html.h"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <cstdint>

#include "base/base64.h"
#include "base/error.h"
#include "base/escape.h"

namespace ms {

extern const PagePart kPageStyle;  // html.css

namespace {

std::string bytes_of_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t at = 0; at < hex.size(); at += 2) {
    unsigned value = 0;
    std::from_chars(hex.data() + at, hex.data() + at + 2, value, 16);
    bytes += static_cast<char>(value);
  }
  return bytes;
}

std::string source_of(const PagePart& part) {
  return fmt::format(" 'sha256-{}'", to_base64(bytes_of_hex(part.sha256)));
}

}  // namespace

std::string html_page(const Page& page) {
  std::string styles = source_of(kPageStyle), scripts, head, tail;
  head = fmt::format("<style>{}</style>\n", kPageStyle.text);
  for (const PagePart* style : page.styles) {
    styles += source_of(*style);
    head += fmt::format("<style>{}</style>\n", style->text);
  }
  for (const PagePart* script : page.scripts) {
    MS_ASSERT(script->text.find("</script") == std::string_view::npos, "a script of ours ends its element");
    scripts += source_of(*script);
    tail += fmt::format("<script>{}</script>\n", script->text);
  }
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src{}; script-src{}; "
      "base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"referrer\" content=\"no-referrer\">\n"
      "<title>{}</title>\n{}</head>\n<body>\n{}{}{}</body>\n</html>\n",
      styles, scripts.empty() ? " 'none'" : scripts, safe_html(page.title), head, page.body, tail, page.late);
}

std::string page_data(std::string_view id, const Json& json) {
  std::string text;
  for (const char c : json.dump_ascii()) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return fmt::format("<script type=\"application/json\" id=\"{}\">{}</script>\n", safe_html(id), text);
}

std::string page_bytes(std::string_view id, std::string_view bytes) {
  return fmt::format("<script type=\"application/octet-stream\" id=\"{}\">{}</script>\n", safe_html(id),
                     to_base64(bytes));
}

std::string page_text(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return safe_html(text);
  const std::string_view begin = text.substr(0, max_bytes);
  return safe_html(begin.substr(0, whole_utf8_bytes(begin))) + "...";
}

}  // namespace ms
