"""From the texts of an application to requests for the servers: tokens are counted, and large requests cut."""
