# Tests of the tree itself, all POSIX sh: include arrows, layout rules, clang-format, words, pages, the proof that they can fail,
# headers that stand alone, the README's lists, golden vectors as their manifest says, and libpolar once installed.
find_program(POLAR_CXX NAMES c++ g++ clang++)    # to read the public headers
mark_as_advanced(POLAR_CXX)
add_test(NAME test_deps COMMAND sh ${CMAKE_SOURCE_DIR}/tests/tree/test_deps.sh ${CMAKE_SOURCE_DIR})
set_tests_properties(test_deps PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME check_includes COMMAND sh ${CMAKE_SOURCE_DIR}/tools/check_includes.sh ${CMAKE_SOURCE_DIR})
add_test(NAME check_layout COMMAND sh ${CMAKE_SOURCE_DIR}/tools/check_layout.sh ${CMAKE_SOURCE_DIR})
add_test(NAME check_format COMMAND sh ${CMAKE_SOURCE_DIR}/tools/check_format.sh ${CMAKE_SOURCE_DIR})
set_tests_properties(check_format PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME check_words COMMAND sh ${CMAKE_SOURCE_DIR}/tools/check_words.sh ${CMAKE_SOURCE_DIR})
add_test(NAME check_docs COMMAND sh ${CMAKE_SOURCE_DIR}/tools/check_docs.sh ${CMAKE_SOURCE_DIR})
if(POLAR_LAB)
  add_test(NAME test_readme COMMAND sh ${CMAKE_SOURCE_DIR}/tests/tree/test_readme.sh ${CMAKE_SOURCE_DIR} $<TARGET_FILE:polar_program> ${CMAKE_BINARY_DIR} ${CMAKE_C_COMPILER})
  add_test(NAME test_gpu_time COMMAND sh ${CMAKE_SOURCE_DIR}/tests/tree/test_gpu_time.sh ${CMAKE_SOURCE_DIR} $<TARGET_FILE:polar_program>)
endif()
add_test(NAME test_how_to COMMAND sh ${CMAKE_SOURCE_DIR}/tests/tree/test_how_to.sh ${CMAKE_SOURCE_DIR})
add_test(NAME test_cuda_script COMMAND sh ${CMAKE_SOURCE_DIR}/tests/tree/test_cuda_script.sh ${CMAKE_SOURCE_DIR})
add_test(NAME test_golden COMMAND sh ${CMAKE_SOURCE_DIR}/tests/tree/test_golden.sh ${CMAKE_SOURCE_DIR})
add_test(NAME test_checks COMMAND sh ${CMAKE_SOURCE_DIR}/tests/tree/test_checks.sh ${CMAKE_SOURCE_DIR})
set(polar_cxx "")
if(POLAR_CXX)
  set(polar_cxx ${POLAR_CXX})
endif()
add_test(NAME test_headers COMMAND sh ${CMAKE_SOURCE_DIR}/tests/tree/test_headers.sh ${CMAKE_SOURCE_DIR} ${CMAKE_C_COMPILER} ${polar_cxx})
if(NOT POLAR_SANITIZE)    # a stranger's program has no sanitizer
  add_test(NAME test_install COMMAND sh ${CMAKE_SOURCE_DIR}/tests/tree/test_install.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} ${CMAKE_COMMAND} ${CMAKE_GENERATOR}
    ${CMAKE_C_COMPILER} ${polar_cxx})
endif()
