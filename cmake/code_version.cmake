# What the code was when it was built, as git describes it, for the store's provenance: polar_code_version.h, looked at in every build and
# rewritten only when it changed. Without git or a repository it is empty and the version of the library stands instead.
#     include(cmake/code_version.cmake)     # once polar_lab is there
if(CMAKE_SCRIPT_MODE_FILE)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --tags OUTPUT_VARIABLE describe OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(text "#define POLAR_CODE_VERSION \"${describe}\"\n")
  if(EXISTS ${OUT})
    file(READ ${OUT} old)
  endif()
  if(NOT "${old}" STREQUAL "${text}")
    file(WRITE ${OUT} "${text}")
  endif()
else()
  set(code_version_header ${CMAKE_BINARY_DIR}/generated/polar_code_version.h)
  add_custom_target(polar_code_version COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUT=${code_version_header} -P ${CMAKE_CURRENT_LIST_FILE}
    BYPRODUCTS ${code_version_header} VERBATIM)
  add_dependencies(polar_lab polar_code_version)
  target_include_directories(polar_lab PRIVATE ${CMAKE_BINARY_DIR}/generated)
endif()
