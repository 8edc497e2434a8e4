// HTTP where ms is built without libcurl.
#include "base/error.h"
#include "data/http_get.h"

namespace ms::data {

struct HttpConnection::Easy {};

HttpConnection::HttpConnection() {
  throw user_error("data.object", "this ms is built without libcurl, so it reads no object stores",
                   "copy the token files to a file system, or build ms with MS_CURL=ON");
}
HttpConnection::~HttpConnection() = default;
HttpConnection::HttpConnection(HttpConnection&&) noexcept = default;
HttpConnection& HttpConnection::operator=(HttpConnection&&) noexcept = default;
HttpGot HttpConnection::get(const HttpGet&, const std::stop_token&) { return {}; }

}  // namespace ms::data
