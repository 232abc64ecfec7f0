# polar_lab_libs: what only the laboratory needs, libyaml for specs and SQLite for the store. libpolar links neither.
find_path(YAML_INCLUDE yaml.h)
find_library(YAML_LIBRARY yaml)
if(NOT YAML_INCLUDE OR NOT YAML_LIBRARY)
  message(FATAL_ERROR "libyaml is not here (Debian and Ubuntu: libyaml-dev; `sh tools/install_deps.sh` installs what is missing). "
    "In a folder of its own: -DCMAKE_PREFIX_PATH=...")
endif()
find_path(SQLITE3_INCLUDE sqlite3.h)
find_library(SQLITE3_LIBRARY sqlite3)
if(NOT SQLITE3_INCLUDE OR NOT SQLITE3_LIBRARY)
  message(FATAL_ERROR "SQLite is not here (Debian and Ubuntu: libsqlite3-dev; `sh tools/install_deps.sh` installs what is missing). "
    "In a folder of its own: -DCMAKE_PREFIX_PATH=...")
endif()
mark_as_advanced(YAML_INCLUDE YAML_LIBRARY SQLITE3_INCLUDE SQLITE3_LIBRARY)
find_package(Threads REQUIRED)    # the runner's jobs
add_library(polar_lab_libs INTERFACE)
target_include_directories(polar_lab_libs SYSTEM INTERFACE ${YAML_INCLUDE} ${SQLITE3_INCLUDE})
target_link_libraries(polar_lab_libs INTERFACE ${YAML_LIBRARY} ${SQLITE3_LIBRARY} Threads::Threads)
