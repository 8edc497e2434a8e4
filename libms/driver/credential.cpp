#include "driver/credential.h"

#include "base/text.h"

namespace ms::driver {

std::string munge_socket(std::string_view auth_info) {
  constexpr std::string_view kKey = "socket=";
  for (const std::string& word : split(auth_info, ',')) {
    if (word.starts_with(kKey)) return word.substr(kKey.size());
  }
  return {};
}

}  // namespace ms::driver
