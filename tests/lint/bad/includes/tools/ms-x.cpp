#include "mesh/high.h"
#include "tests/helpers.h"
