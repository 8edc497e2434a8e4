#include "driver/credential.h"

#include <strings.h>

#include "base/text.h"

namespace ms::driver {

std::string munge_socket(std::string_view auth_info) {
  constexpr std::string_view kKey = "socket=";
  for (const std::string& word : split(auth_info, ',')) {
    if (word.starts_with(kKey)) return word.substr(kKey.size());
  }
  return {};
}

std::string munge_socket_in_conf(std::string_view slurm_conf) {
  std::string auth_info;
  for (const std::string& line : split(slurm_conf, '\n')) {
    const std::string_view said = trim(std::string_view(line).substr(0, line.find('#')));
    const std::size_t equals = said.find('=');
    if (equals == said.npos || strcasecmp(std::string(trim(said.substr(0, equals))).c_str(), "authinfo") != 0) continue;
    auth_info = trim(said.substr(equals + 1));
  }
  return munge_socket(auth_info);
}

}  // namespace ms::driver
