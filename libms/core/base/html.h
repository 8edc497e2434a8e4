// The pages that programs write: one file each, that asks for nothing from elsewhere and runs only what we embedded.
// Text from outside enters a page through safe_html() of escape.h, or as data through page_data(). Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ms {

// A script or a style sheet of ours, embedded by ms_embed() of cmake/ms_module.cmake.
struct PagePart {
  std::string_view text;
  std::string_view sha256;  // of the text, 64 hexadecimal digits
};

struct Page {
  std::string title;                          // text
  std::string body;                           // HTML
  std::vector<const PagePart*> styles = {};   // beside the style of all pages
  std::vector<const PagePart*> scripts = {};  // run in this order, after the body
  std::string late = {};                      // HTML after the scripts, which may begin before all of it is there
};

// Returns the document. Its content security policy allows these styles and scripts by their checksums, and nothing
// else: no other script, no style attribute, and no request.
std::string html_page(const Page& page);

// Returns an element that holds a document for the page's scripts: JSON.parse(document.getElementById(id).textContent).
// No text in it ends the element.
std::string page_data(std::string_view id, const Json& json);

// Returns an element that holds bytes in base64.
std::string page_bytes(std::string_view id, std::string_view bytes);

// Returns text from outside for a page: of more than `max_bytes` the beginning and "...", then safe_html().
std::string page_text(std::string_view text, std::size_t max_bytes);

}  // namespace ms
